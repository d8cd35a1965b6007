package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAcquireRenewRelease(t *testing.T) {
	s := startOne(t)
	code, first := post(t, s.Address(), "/leased.v1.LeaseService/Acquire", `{"resource":"a","ttl":"10s","holder":"me","metadata":{"k":"v"}}`)
	require.Equal(t, http.StatusOK, code, first)
	require.Equal(t, "correctness", first["mode"])
	require.IsType(t, 0.0, first["token"], "a token is a JSON number")

	code, refused := post(t, s.Address(), "/v1/acquire", `{"resource":"a"}`)
	require.Equal(t, http.StatusConflict, code)
	require.Equal(t, "held", refused["code"])
	require.NotEmpty(t, refused["hint"])

	named := fmt.Sprintf(`{"resource":"a","token":%v}`, first["token"])
	code, renewed := post(t, s.Address(), "/v1/renew", named)
	require.Equal(t, http.StatusOK, code, renewed)
	require.Equal(t, []any{first["token"]}, renewed["tokens"])
	code, renewed = post(t, s.Address(), "/v1/renew", fmt.Sprintf(`{"sessionId":%q}`, first["sessionId"]))
	require.Equal(t, http.StatusOK, code, renewed)

	_, inspected := post(t, s.Address(), "/v1/inspect", `{"resource":"a"}`)
	holder := inspected["lock"].(map[string]any)["holders"].([]any)[0].(map[string]any)
	require.Equal(t, "me", holder["holder"])
	require.Equal(t, map[string]any{"k": "v"}, holder["metadata"])

	code, released := post(t, s.Address(), "/v1/release", named)
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, true, released["released"])
	_, released = post(t, s.Address(), "/v1/release", named)
	require.Empty(t, released, "released twice")
	code, renewed = post(t, s.Address(), "/v1/renew", named)
	require.Equal(t, http.StatusNotFound, code)
	require.Equal(t, "not-held", renewed["code"])
	code, renewed = post(t, s.Address(), "/v1/renew", fmt.Sprintf(`{"sessionId":%q}`, first["sessionId"]))
	require.Equal(t, http.StatusGone, code, "the session of one lease ends with it")
	require.Equal(t, "expired", renewed["code"])

	_, second := post(t, s.Address(), "/v1/acquire", `{"resource":"a"}`)
	require.Greater(t, second["token"], first["token"])
}

// TestWaiting: a call that waits keeps its session alive for longer than its TTL,
// and is granted in the end.
func TestWaiting(t *testing.T) {
	s := startOne(t)
	_, first := post(t, s.Address(), "/v1/acquire", `{"resource":"a","ttl":"1s"}`) // it expires
	code, second := post(t, s.Address(), "/v1/acquire", `{"resource":"a","ttl":"200ms","wait":"30s"}`)
	require.Equal(t, http.StatusOK, code, second)
	require.Greater(t, second["token"], first["token"])
}

// TestCallerLeaves: who hangs up while waiting leaves nothing behind.
func TestCallerLeaves(t *testing.T) {
	s := startOne(t)
	post(t, s.Address(), "/v1/acquire", `{"resource":"a","ttl":"1m"}`)
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Address()+"/v1/acquire", strings.NewReader(`{"resource":"a","ttl":"1m","wait":"1m"}`))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	done := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(request)
		done <- err
	}()
	waiters := func() int {
		_, inspected := post(t, s.Address(), "/v1/inspect", `{"resource":"a"}`)
		list, _ := inspected["lock"].(map[string]any)["waiters"].([]any)
		return len(list)
	}
	eventually(t, "it waits", func() bool { return waiters() == 1 })
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	eventually(t, "it has left the queue", func() bool { return waiters() == 0 })
}

func TestBadRequests(t *testing.T) {
	s := startOne(t)
	for _, c := range []struct{ name, path, body, says string }{
		{"no resource", "/v1/acquire", `{}`, "resource must be given"},
		{"unknown field", "/v1/acquire", `{"resuorce":"a"}`, "resuorce"},
		{"bad ttl", "/v1/acquire", `{"resource":"a","ttl":"soon"}`, "soon"},
		{"ttl out of bounds", "/v1/acquire", `{"resource":"a","ttl":"1ms"}`, "ttl (1ms) must be from"},
		{"ttl with a session", "/v1/acquire", `{"resource":"a","ttl":"1s","sessionId":"00000000000000000000000000000000"}`, "the session has its own"},
		{"bad mode", "/v1/acquire", `{"resource":"a","mode":"strong"}`, "strong"},
		{"shared permits", "/v1/acquire", `{"resource":"a","shared":true,"permits":2}`, "exclude each other"},
		{"large nonce", "/v1/acquire", `{"resource":"a","sessionId":"00000000000000000000000000000000","nonce":4294967296}`, "below 2^32"},
		{"renew what", "/v1/renew", `{}`, "renew needs"},
		{"release what", "/v1/release", `{"resource":"a"}`, "release needs"},
		{"break what", "/v1/break", `{"resource":"a"}`, "needs the token"},
		{"watch what", "/v1/watch", `{}`, "watch needs"},
		{"large page", "/v1/list", `{"pageSize":100000}`, "pageSize"},
		{"policy without mode", "/v1/set-policy", `{"policy":{"prefix":"a"}}`, "efficiency"},
		{"lock-delay with efficiency", "/v1/set-policy", `{"policy":{"prefix":"a","mode":"efficiency","lockDelay":"1s"}}`, "lock-delay (1s) is for correctness mode"},
		{"next is not for callers", "/v1/set-policy", `{"policy":{"prefix":"a","mode":"correctness","next":"efficiency"}}`, "set by the service"},
		{"abort nothing", "/v1/abort-migration", `{"prefix":"a"}`, `no move of "a" is under way; see 'leased policy show'`},
		{"even fleet", "/v1/set-fleet", `{"fleet":{"namespace":"n","maxTtl":"1m","addresses":["a:1","b:1"]}}`, "use an odd number"},
		{"no fleet", "/v1/set-fleet", `{"fleet":{}}`, "fleet.addresses is empty"},
		{"floor 0", "/v1/provide-floor", `{}`, "floor (0) must be from 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, answer := post(t, s.Address(), c.path, c.body)
			require.Equal(t, http.StatusBadRequest, code, answer)
			require.Equal(t, "invalid", answer["code"])
			require.Contains(t, answer["message"], c.says)
			require.NotEmpty(t, answer["hint"])
		})
	}
	code, answer := post(t, s.Address(), "/v1/aquire", `{}`)
	require.Equal(t, http.StatusNotFound, code)
	require.Contains(t, answer["message"], "/v1/aquire")
	response, err := http.Post("http://"+s.Address()+"/v1/acquire", "text/plain", strings.NewReader(`{"resource":"a"}`))
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusBadRequest, response.StatusCode, "a page of a stranger can send text, not JSON")
}

// TestEfficiencyWithoutRedis: the error says what is missing.
func TestEfficiencyWithoutRedis(t *testing.T) {
	s := startOne(t)
	code, answer := post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"fast/","mode":"efficiency"}}`)
	require.Equal(t, http.StatusNotImplemented, code)
	require.Contains(t, answer["message"], "Redis")
}

func TestPolicyVersions(t *testing.T) {
	s := startOne(t)
	code, first := post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"a/","mode":"correctness","ttl":"3s"}}`)
	require.Equal(t, http.StatusOK, code, first)
	code, answer := post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"b/","mode":"correctness"},"version":999}`)
	require.Equal(t, http.StatusConflict, code)
	require.Equal(t, "outdated", answer["code"])
	_, lease := post(t, s.Address(), "/v1/acquire", `{"resource":"a/x"}`)
	require.Equal(t, "3s", lease["ttl"], "the policy's ttl")
	code, answer = post(t, s.Address(), "/v1/delete-policy", `{"prefix":"c/"}`)
	require.Equal(t, http.StatusBadRequest, code, answer)
}

// TestStrangersInABrowser: a page of another site cannot make a browser call the
// API, also where no content type is asked for.
func TestStrangersInABrowser(t *testing.T) {
	s := startOne(t)
	for header, value := range map[string]string{"Origin": "http://example.com", "Sec-Fetch-Site": "cross-site"} {
		request, err := http.NewRequest(http.MethodPost, "http://"+s.Address()+"/v1/restore-snapshot", strings.NewReader("x"))
		require.NoError(t, err)
		request.Header.Set(header, value)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusForbidden, response.StatusCode)
	}
}

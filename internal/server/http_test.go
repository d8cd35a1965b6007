package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAcquireRenewRelease(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	code, first := post(t, s.Address(), "/leased.v1.LeaseService/Acquire",
		`{"resource":"a","ttl":"1m","holder":"me","metadata":{"k":"v"}}`)
	require.Equal(t, http.StatusOK, code, first)
	require.Equal(t, "correctness", first["mode"])
	require.IsType(t, 0.0, first["token"], "a token is a JSON number")

	code, refused := post(t, s.Address(), "/v1/acquire", `{"resource":"a"}`)
	require.Equal(t, http.StatusConflict, code)
	require.Equal(t, "held", refused["code"])
	require.NotEmpty(t, refused["hint"])

	renewed := mustPost(t, s.Address(), "/v1/renew", leaseName(first))
	require.Equal(t, []any{first["token"]}, renewed["tokens"])
	mustPost(t, s.Address(), "/v1/renew", fmt.Sprintf(`{"sessionId":%q}`, first["sessionId"]))

	inspected := mustPost(t, s.Address(), "/v1/inspect", `{"resource":"a"}`)
	holder := inspected["lock"].(map[string]any)["holders"].([]any)[0].(map[string]any)
	require.Equal(t, "me", holder["holder"])
	require.Equal(t, map[string]any{"k": "v"}, holder["metadata"])

	require.Equal(t, true, mustPost(t, s.Address(), "/v1/release", leaseName(first))["released"])
	require.Equal(t, false, mustPost(t, s.Address(), "/v1/release", leaseName(first))["released"],
		"it was released before")
	code, renewed = post(t, s.Address(), "/v1/renew", leaseName(first))
	require.Equal(t, http.StatusNotFound, code)
	require.Equal(t, "not-held", renewed["code"])
	code, renewed = post(t, s.Address(), "/v1/renew", fmt.Sprintf(`{"sessionId":%q}`, first["sessionId"]))
	require.Equal(t, http.StatusGone, code, "the session of a single lease ends with it")
	require.Equal(t, "expired", renewed["code"])

	second := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"a"}`)
	require.Greater(t, second["token"], first["token"])
}

// A call that waits keeps its session alive for longer than the TTL.
func TestWaitKeepsSessionAlive(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	first := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"a","ttl":"15s"}`) // it expires
	second := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"a","ttl":"10s","wait":"2m"}`)
	require.Greater(t, second["token"], first["token"])
}

// A caller that disconnects while it waits leaves nothing behind.
func TestCallerDisconnects(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	mustPost(t, s.Address(), "/v1/acquire", `{"resource":"a","ttl":"5m"}`)
	ctx, cancel := context.WithCancel(context.Background())
	request := newPost(t, s.Address(), "/v1/acquire", `{"resource":"a","ttl":"5m","wait":"5m"}`).WithContext(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(request)
		done <- err
	}()
	waiters := func() int {
		inspected := mustPost(t, s.Address(), "/v1/inspect", `{"resource":"a"}`)
		list, _ := inspected["lock"].(map[string]any)["waiters"].([]any)
		return len(list)
	}
	eventually(t, "the call waits", func() bool { return waiters() == 1 })
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	eventually(t, "the call has left the queue", func() bool { return waiters() == 0 })
}

// An attempt that is answered with held has ended, also if the caller could repeat it by its
// nonce: it must not be granted later, without anybody who knows.
func TestHeldAttemptLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	first := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"a","ttl":"5m"}`)
	opened := mustPost(t, s.Address(), "/v1/open-session", `{"ttl":"5m"}`)
	for _, fields := range []string{`"nonce":1,"wait":"50ms"`, `"wait":"50ms"`, `"nonce":2`} {
		code, refused := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":"a","sessionId":%q,%s}`,
			opened["sessionId"], fields))
		require.Equal(t, http.StatusConflict, code, refused)
		require.Equal(t, "held", refused["code"])
		lock := mustPost(t, s.Address(), "/v1/inspect", `{"resource":"a"}`)["lock"].(map[string]any)
		require.Empty(t, lock["waiters"], "an attempt with %s is still queued", fields)
	}
	mustPost(t, s.Address(), "/v1/release", leaseName(first))
	mustPost(t, s.Address(), "/v1/acquire", `{"resource":"a"}`)
}

// The copies of an attempt have one outcome. A copy whose wait is over ends an attempt that
// still waits, also for the other copies, but never a lease that was granted.
func TestCopiesHaveOneOutcome(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	id := mustPost(t, s.Address(), "/v1/open-session", `{"ttl":"5m"}`)["sessionId"]
	parties := func(lock, of string) int {
		list, _ := mustPost(t, s.Address(), "/v1/inspect", fmt.Sprintf(`{"resource":%q}`,
			lock))["lock"].(map[string]any)[of].([]any)
		return len(list)
	}
	body := func(lock string, nonce int, wait string) string {
		return fmt.Sprintf(`{"resource":%q,"sessionId":%q,"nonce":%d,"wait":%q}`, lock, id, nonce, wait)
	}
	type answer struct {
		code int
		body map[string]any
	}
	// first sends the first copy of an attempt, which waits for a lease.
	first := func(ctx context.Context, lock string, nonce int) (lease map[string]any, answers chan answer) {
		lease = mustPost(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"ttl":"5m"}`, lock))
		answers = make(chan answer, 1)
		request := newPost(t, s.Address(), "/v1/acquire", body(lock, nonce, "5m")).WithContext(ctx)
		go func() {
			var a answer
			if response, err := http.DefaultClient.Do(request); err == nil {
				a.code = response.StatusCode
				_ = json.NewDecoder(response.Body).Decode(&a.body)
				_ = response.Body.Close()
			}
			answers <- a
		}()
		eventually(t, "the first copy waits", func() bool { return parties(lock, "waiters") == 1 })
		return lease, answers
	}

	for nonce, wait := range map[int]string{1: "1ns", 2: "0s"} {
		lock := "waits/" + wait
		_, answers := first(t.Context(), lock, nonce)
		code, refused := post(t, s.Address(), "/v1/acquire", body(lock, nonce, wait))
		require.Equal(t, http.StatusConflict, code, refused)
		require.Equal(t, http.StatusConflict, (<-answers).code, "a copy with a wait of %s has ended the attempt", wait)
		require.Zero(t, parties(lock, "waiters"))
	}

	ctx, cancel := context.WithCancel(t.Context())
	_, answers := first(ctx, "gone", 3)
	cancel()
	require.Zero(t, (<-answers).code)
	require.Equal(t, 1, parties("gone", "waiters"), "its caller may repeat the attempt")
	code, refused := post(t, s.Address(), "/v1/acquire", body("gone", 3, "1ns"))
	require.Equal(t, http.StatusConflict, code, refused)
	require.Zero(t, parties("gone", "waiters"))

	lease, answers := first(t.Context(), "granted", 4)
	mustPost(t, s.Address(), "/v1/release", leaseName(lease))
	granted := <-answers
	require.Equal(t, http.StatusOK, granted.code, granted.body)
	for _, wait := range []string{"1ns", "0s", "5m"} {
		code, again := post(t, s.Address(), "/v1/acquire", body("granted", 4, wait))
		require.Equal(t, http.StatusOK, code, "a copy with a wait of %s: %v", wait, again)
		require.Equal(t, granted.body["token"], again["token"], "a copy with a wait of %s", wait)
		require.Equal(t, 1, parties("granted", "holders"), "a copy with a wait of %s has ended the lease", wait)
	}
}

// Only a lease that was held is reported as released, also by session and nonce.
func TestReleaseReportsHeldLeases(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	opened := mustPost(t, s.Address(), "/v1/open-session", `{"ttl":"5m"}`)
	acquire := func(resource string, nonce int) (int, map[string]any) {
		return post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"sessionId":%q,"nonce":%d}`, resource,
			opened["sessionId"], nonce))
	}
	release := func(nonce int) any {
		return mustPost(t, s.Address(), "/v1/release", fmt.Sprintf(`{"sessionId":%q,"nonce":%d}`, opened["sessionId"],
			nonce))["released"]
	}
	for nonce, name := range map[int]string{1: "a", 2: "b"} {
		code, granted := acquire(name, nonce)
		require.Equal(t, http.StatusOK, code, granted)
	}
	require.Equal(t, false, release(3), "there is no such attempt")
	require.Equal(t, true, release(1))
	require.Equal(t, false, release(1), "it was released before")
	require.Equal(t, true, release(2))
	code, refused := acquire("c", 3)
	require.Equal(t, http.StatusConflict, code, "a released attempt is not granted: %v", refused)
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, c := range []struct{ name, path, body, says string }{
		{"no resource", "/v1/acquire", `{}`, "acquire needs resource"},
		{"unknown field", "/v1/acquire", `{"resuorce":"a"}`, "resuorce"},
		{"ttl 0", "/v1/acquire", `{"resource":"a","ttl":"0s"}`, "ttl (0s) must be above 0"},
		{"negative ttl", "/v1/acquire", `{"resource":"a","ttl":"-1s"}`, "-1s"},
		{"ttl 0 of a session", "/v1/open-session", `{"ttl":"0"}`, "ttl (0) must be above 0"},
		{"ttl 0 of a policy", "/v1/set-policy", `{"policy":{"prefix":"a","mode":"correctness","ttl":"0s"}}`,
			"ttl (0s) must be above 0"},
		{"renew 0 of a policy", "/v1/set-policy", `{"policy":{"prefix":"a","mode":"correctness","renew":"0ms"}}`,
			"renew (0ms) must be above 0"},
		{"resource and resources", "/v1/acquire", `{"resource":"a","resources":["a","b"]}`,
			"resource (a) and resources (a, b) cannot be combined"},
		{"bad ttl", "/v1/acquire", `{"resource":"a","ttl":"soon"}`, "soon"},
		{"ttl out of bounds", "/v1/acquire", `{"resource":"a","ttl":"1ms"}`, "ttl (1ms) must be from"},
		{"ttl with a session", "/v1/acquire", `{"resource":"a","ttl":"1s","sessionId":"00000000000000000000000000000000"}`,
			"the session has its own"},
		{"bad mode", "/v1/acquire", `{"resource":"a","mode":"strong"}`, "strong"},
		{"shared permits", "/v1/acquire", `{"resource":"a","shared":true,"permits":2}`, "exclude each other"},
		{"large nonce", "/v1/acquire", `{"resource":"a","sessionId":"00000000000000000000000000000000","nonce":4294967296}`,
			"below 2^32"},
		{"renew without a name", "/v1/renew", `{}`, "renew needs"},
		{"release without a name", "/v1/release", `{"resource":"a"}`, "release needs"},
		{"break without a token", "/v1/break", `{"resource":"a"}`, "needs the token"},
		{"watch without a name", "/v1/watch", `{}`, "watch needs"},
		{"large page", "/v1/list", `{"pageSize":100000}`, "pageSize"},
		{"policy without mode", "/v1/set-policy", `{"policy":{"prefix":"a"}}`, "efficiency"},
		{"lock-delay with efficiency", "/v1/set-policy", `{"policy":{"prefix":"a","mode":"efficiency","lockDelay":"1s"}}`,
			"lock-delay (1s)"},
		{"next is not for callers", "/v1/set-policy", `{"policy":{"prefix":"a","mode":"correctness","next":"efficiency"}}`,
			"set by the service"},
		{"abort without a migration", "/v1/abort-migration", `{"prefix":"a"}`, `"a"`},
		{"even fleet", "/v1/set-fleet", `{"fleet":{"namespace":"n","maxTtl":"1m","addresses":["a:1","b:1"]}}`,
			"use an odd number"},
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
}

// Requests that are wrong as HTTP requests have the status that HTTP has for them,
// and an error in JSON.
func TestHTTPStatuses(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, c := range []struct {
		name, method, path, kind, body string
		status                         int
		code, says, allow              string
	}{
		{"get", "GET", "/v1/acquire", "", "", 405, "invalid", "takes POST requests, not GET", "POST"},
		{"put", "PUT", "/leased.v1.LeaseService/Acquire", "application/json", "{}", 405, "invalid",
			"takes POST requests, not PUT", "POST"},
		{"probe", "POST", "/livez", "application/json", "{}", 405, "invalid", "takes GET or HEAD requests", "GET, HEAD"},
		{"get a stream", "GET", "/v1/watch", "", "", 405, "invalid", "takes POST requests", "POST"},
		{"unknown path", "POST", "/v1/aquire", "application/json", "{}", 404, "invalid", "unknown path /v1/aquire", ""},
		{"unknown path and method", "GET", "/v1", "", "", 404, "invalid", "unknown path /v1", ""},
		{"longer path", "POST", "/v1/acquire/", "application/json", "{}", 404, "invalid", "unknown path /v1/acquire/", ""},
		{"text", "POST", "/v1/acquire", "text/plain", `{"resource":"a"}`, 415, "invalid",
			`the content type must be application/json, not "text/plain"`, ""},
		{"no type", "POST", "/v1/acquire", "", `{"resource":"a"}`, 415, "invalid",
			`the content type must be application/json, not ""`, ""},
		{"text to a stream", "POST", "/v1/watch", "text/plain", `{"resource":"a"}`, 415, "invalid",
			"must be application/json", ""},
		{"large body", "POST", "/v1/acquire", "application/json", `{"holder":"` + strings.Repeat("x", 2<<20) + `"}`, 413,
			"too-large", "the body has more than", ""},
		{"large body of a stream", "POST", "/v1/watch", "application/json", `{"resource":"` + strings.Repeat("x", 2<<20) +
			`"}`, 413, "too-large", "bytes", ""},
		{"no JSON", "POST", "/v1/acquire", "application/json", `resource=a`, 400, "invalid", "the body is not valid JSON",
			""},
		{"half an object", "POST", "/v1/acquire", "application/json", `{"resource":"a"`, 400, "invalid",
			"the body is not valid JSON", ""},
		{"a list", "POST", "/v1/acquire", "application/json", `["a"]`, 400, "invalid", "must be a JSON object", ""},
		{"null", "POST", "/v1/acquire", "application/json", `null`, 400, "invalid", "", ""},
		{"garbage after it", "POST", "/v1/acquire", "application/json", `{"resource":"a"} x`, 400, "invalid",
			"continues after its JSON object, at byte 16", ""},
		{"two objects", "POST", "/v1/acquire", "application/json", `{"resource":"a"}{"resource":"b"}`, 400, "invalid",
			"continues after its JSON object", ""},
		{"number for a text", "POST", "/v1/acquire", "application/json", `{"resource":5}`, 400, "invalid",
			`field "resource" must be a string, not a number`, ""},
		{"text for a list", "POST", "/v1/acquire", "application/json", `{"resources":"a"}`, 400, "invalid",
			`field "resources" must be a list, not a string`, ""},
		{"number in a list", "POST", "/v1/acquire", "application/json", `{"resources":["a",2]}`, 400, "invalid",
			`field "resources[1]" must be a string, not a number`, ""},
		{"number in a map", "POST", "/v1/acquire", "application/json", `{"resource":"a","metadata":{"k":1}}`, 400, "invalid",
			`field "metadata" must be an object of strings`, ""},
		{"text for an object", "POST", "/v1/set-policy", "application/json", `{"policy":"a"}`, 400, "invalid",
			`field "policy" must be an object, not a string`, ""},
		{"number in an object", "POST", "/v1/set-policy", "application/json", `{"policy":{"ttl":10}}`, 400, "invalid",
			`field "policy.ttl" must be a string, not a number`, ""},
		{"text for a truth value", "POST", "/v1/acquire", "application/json", `{"resource":"a","shared":"yes"}`, 400,
			"invalid", `field "shared" must be true or false, not a string`, ""},
		{"large number", "POST", "/v1/acquire", "application/json", `{"resource":"a","permits":99999999999}`, 400, "invalid",
			"99999999999", ""},
		{"text for a number", "POST", "/v1/acquire", "application/json", `{"resource":"a","permits":"two"}`, 400, "invalid",
			`field "permits" must be a number, not a string`, ""},
		{"unknown field", "POST", "/v1/acquire", "application/json", `{"resuorce":"a"}`, 400, "invalid",
			`unknown field "resuorce"; the fields are resource, resources`, ""},
		{"field twice", "POST", "/v1/acquire", "application/json", `{"resource":"a","resource":"b"}`, 400, "invalid",
			"duplicate field", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(testContext(t), c.method, "http://"+s.Address()+c.path,
				strings.NewReader(c.body))
			require.NoError(t, err)
			if c.kind != "" {
				request.Header.Set("Content-Type", c.kind)
			}
			response, err := http.DefaultClient.Do(request)
			require.NoError(t, err)
			defer response.Body.Close()
			var answer map[string]any
			require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
			require.Equal(t, c.status, response.StatusCode, answer)
			require.Equal(t, c.allow, response.Header.Get("Allow"))
			require.Equal(t, c.code, answer["code"])
			require.Contains(t, answer["message"], c.says)
			require.NotContains(t, answer["message"], "proto:")
		})
	}
}

// An efficiency policy without Redis nodes is rejected, with the reason.
func TestEfficiencyWithoutRedis(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	code, answer := post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"fast/","mode":"efficiency"}}`)
	require.Equal(t, http.StatusNotImplemented, code)
	require.Contains(t, answer["message"], "Redis")
}

func TestPolicyVersions(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	mustPost(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"a/","mode":"correctness","ttl":"13s"}}`)
	code, answer := post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"b/","mode":"correctness"},"version":999}`)
	require.Equal(t, http.StatusConflict, code)
	require.Equal(t, "outdated", answer["code"])
	granted := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"a/x"}`)
	require.Equal(t, "13s", granted["ttl"], "the TTL of the policy")
	code, answer = post(t, s.Address(), "/v1/delete-policy", `{"prefix":"c/"}`)
	require.Equal(t, http.StatusBadRequest, code, answer)
}

// A page of another site cannot make a browser call the API, not even a call that
// needs no content type.
func TestCrossSiteRequests(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for header, value := range map[string]string{"Origin": "http://example.com", "Sec-Fetch-Site": "cross-site"} {
		request := newPost(t, s.Address(), "/v1/restore-snapshot", "x")
		request.Header.Set(header, value)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusForbidden, response.StatusCode)
	}
}

// A site whose name leads to the address of a service without users (DNS rebinding) has the
// same origin as the service, and still cannot use it.
func TestForeignHosts(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	_, port, err := net.SplitHostPort(s.Address())
	require.NoError(t, err)
	ask := func(method, path, host string) (int, string) {
		request := newPost(t, s.Address(), path, `{"resource":"a"}`)
		request.Method, request.Host = method, host
		request.Header.Set("Origin", "http://"+host)
		request.Header.Set("Sec-Fetch-Site", "same-origin")
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(text)
	}
	for method, path := range map[string]string{"POST": "/v1/acquire", "GET": "/ui/live?view=locks"} {
		code, text := ask(method, path, "example.com:"+port)
		require.Equal(t, http.StatusMisdirectedRequest, code, text)
		var answer map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &answer))
		require.Equal(t, "invalid", answer["code"])
		require.Contains(t, answer["message"], "does not answer for host")
		require.NotEmpty(t, answer["hint"])
	}
	code, text := ask("POST", "/v1/acquire", "localhost:"+port)
	require.Equal(t, http.StatusOK, code, text)
	code, text = ask("POST", "/v1/inspect", s.Address())
	require.Equal(t, http.StatusOK, code, text)
}

package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
)

func TestEfficiencyConforms(t *testing.T) {
	t.Parallel()
	s := startWithRedis(t)
	setMode(t, s.Address(), "leasetest/", engine.Efficiency)
	t.Run("suite", func(t *testing.T) {
		leasetest.Run(t, func(t *testing.T) leasetest.Subject {
			t.Parallel()
			return leasetest.Subject{
				Backend:     func() engine.Backend { return newClient(t, []string{s.Address()}).Efficiency() },
				Mode:        engine.Efficiency,
				TTL:         suiteTTL,
				Sessionless: true,
				Unsupported: []leasetest.Feature{leasetest.FeatureShared, leasetest.FeaturePermits},
			}
		})
	})
}

// The policy decides on the mode. A caller that expects another mode gets an error
// that names both.
func TestModes(t *testing.T) {
	t.Parallel()
	s := startWithRedis(t)
	fast := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	require.Equal(t, "efficiency", fast["mode"], fast)
	require.Equal(t, "10s", fast["ttl"])
	slow := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"slow/a"}`)
	require.Equal(t, "correctness", slow["mode"])
	for _, c := range []struct{ resource, expected, has string }{{"fast/b", "correctness", "efficiency"},
		{"slow/b", "efficiency", "correctness"}} {
		code, answer := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"mode":%q}`, c.resource, c.expected))
		require.Equal(t, http.StatusConflict, code)
		require.Equal(t, "mode-mismatch", answer["code"])
		require.Equal(t, c.expected, answer["expectedMode"])
		require.Equal(t, c.has, answer["mode"])
	}
	code, answer := post(t, s.Address(), "/v1/acquire", `{"resources":["fast/b","slow/b"]}`)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, answer["message"], "must have one mode")
	code, answer = post(t, s.Address(), "/v1/acquire", `{"resource":"fast/b","shared":true}`)
	require.Equal(t, http.StatusNotImplemented, code)
	require.Contains(t, answer["message"], "exclusive leases")

	leased := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/c","ttl":"1m"}`)
	require.Equal(t, []any{leased["token"]}, mustPost(t, s.Address(), "/v1/renew", leaseName(leased))["tokens"])
	require.Equal(t, true, mustPost(t, s.Address(), "/v1/release", leaseName(leased))["released"])
	require.Equal(t, false, mustPost(t, s.Address(), "/v1/release", leaseName(leased))["released"])
	code, answer = post(t, s.Address(), "/v1/renew", leaseName(leased))
	require.Equal(t, http.StatusNotFound, code, answer)
}

// A session id with a lock in efficiency mode is rejected, with the right way to do
// it.
func TestEfficiencyHasNoSessions(t *testing.T) {
	t.Parallel()
	s := startWithRedis(t)
	opened := mustPost(t, s.Address(), "/v1/open-session", `{"ttl":"1m"}`)
	code, answer := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":"fast/a","sessionId":%q}`,
		opened["sessionId"]))
	require.Equal(t, http.StatusBadRequest, code, answer)
	require.Equal(t, "invalid", answer["code"])
	require.Contains(t, answer["message"], "acquire it without sessionId, and renew it by resource and token")

	granted := mustPost(t, s.Address(), "/v1/acquire", `{"resource":"fast/a"}`)
	for _, path := range []string{"/v1/renew", "/v1/close-session"} {
		code, answer = post(t, s.Address(), path, fmt.Sprintf(`{"sessionId":%q}`, granted["sessionId"]))
		require.Equal(t, http.StatusBadRequest, code, answer)
		require.Contains(t, answer["message"], "name the lease by resource and token")
	}
}

// The error for a held lock names the holder.
func TestHeldErrorNamesHolder(t *testing.T) {
	t.Parallel()
	s := startWithRedis(t)
	for _, name := range []string{"slow/a", "fast/a"} {
		granted := mustPost(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"ttl":"1m","holder":"ann"}`, name))
		code, refused := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"ttl":"1m"}`, name))
		require.Equal(t, http.StatusConflict, code)
		require.Contains(t, refused["message"], fmt.Sprintf("%q by ann with token %.0f", name, granted["token"]))
	}
}

// No TTL in efficiency mode is longer than the quarantine of a node, neither in a
// policy nor in a call.
func TestLongTTLsAreRejected(t *testing.T) {
	t.Parallel()
	s := startWithRedis(t)
	code, answer := post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"long/","mode":"efficiency","ttl":"2m"}}`)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, answer["message"], "ttl (2m0s) must be at most the longest TTL of the Redis fleet (1m0s)")
	code, answer = post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a","ttl":"2m"}`)
	require.Equal(t, http.StatusBadRequest, code, answer)
	require.Contains(t, answer["message"], "ttl (2m0s)")
	code, answer = post(t, s.Address(), "/v1/set-fleet",
		`{"fleet":{"namespace":"n","maxTtl":"1s","addresses":["127.0.0.1:1"]}}`)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, answer["message"], `must be at least the ttl (10s) of the policy for "fast/"`)

	mustPost(t, s.Address(), "/v1/set-fleet",
		`{"fleet":{"namespace":"n","maxTtl":"30s","addresses":["127.0.0.1:1"]},"force":true}`) // it waits for leases
	code, answer = post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"long/","mode":"efficiency","ttl":"45s"}}`)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, answer["message"], "ttl (45s) must be at most the longest TTL of the Redis fleet (30s)")
}

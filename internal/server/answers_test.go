package server_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server/httpapi"
)

// A caller without a session can repeat an acquire whose response was lost. Another caller learns
// who holds the lock, and when to try again.
func TestAcquireCanBeRepeated(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const call = `{"resource": "a", "ttl": "1m", "attempt": "0123456789abcdef"}`
	_, first := post(t, s.Address(), "/v1/acquire", call)
	require.NotZero(t, first["token"], "%v", first)
	require.Equal(t, "127.0.0.1", first["holder"], "the address names the holder")
	require.NotEmpty(t, first["expires"])
	_, again := post(t, s.Address(), "/v1/acquire", call)
	require.Equal(t, first["token"], again["token"], "%v", again)

	var header http.Header
	eventually(t, "the member leads", func() bool {
		response, err := http.Post("http://"+s.Address()+"/v1/acquire", "application/json",
			strings.NewReader(`{"resource": "a"}`))
		require.NoError(t, err)
		response.Body.Close()
		header = response.Header
		return header.Get(httpapi.LeaderHeader) == s.Address()
	})
	require.Equal(t, "1", header.Get("Retry-After"))
	_, held := post(t, s.Address(), "/v1/acquire", `{"resource": "a", "attempt": "fedcba9876543210"}`)
	require.Equal(t, "held", held["code"], "another attempt")
	require.Equal(t, "1s", held["retryAfter"])
	require.EqualValues(t, 1, held["position"])
	by := held["heldBy"].(map[string]any)
	require.Equal(t, first["token"], by["token"])
	require.NotEmpty(t, by["ttlLeft"])

	released := fmt.Sprintf(`{"resource": "a", "token": %v}`, first["token"])
	for _, want := range []bool{true, false} {
		_, answer := post(t, s.Address(), "/v1/release", released)
		require.Equal(t, map[string]any{"released": want}, answer)
	}
	for _, bad := range []string{`{"resource": "a", "attempt": "short"}`,
		`{"resource": "a", "attempt": "0123456789abcdef", "sessionId": "00"}`} {
		_, answer := post(t, s.Address(), "/v1/acquire", bad)
		require.Equal(t, "invalid", answer["code"])
	}
}

// A holder learns of a loss from the stream of its session, which ends with the session.
func TestWatchSession(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	_, opened := post(t, s.Address(), "/v1/open-session", `{"ttl": "1h"}`)
	id := opened["sessionId"]
	_, lease := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource": "a", "sessionId": %q, "nonce": 7}`, id))
	next := watchSession(t, s.Address(), id)
	require.Equal(t, fmt.Sprintf(`{"type":"synced","tokens":[%v]}`, lease["token"]), next())
	post(t, s.Address(), "/v1/break", fmt.Sprintf(`{"resource": "a", "token": %v}`, lease["token"]))
	lost := next()
	require.Contains(t, lost, `"type":"lost"`)
	require.Contains(t, lost, fmt.Sprintf(`"nonce":7,"token":%v,"error":{"code":"taken"`, lease["token"]))
	post(t, s.Address(), "/v1/close-session", fmt.Sprintf(`{"sessionId": %q}`, id))
	require.Contains(t, next(), `{"code":"expired"`)
	require.Empty(t, next(), "the stream has ended")
	_, unknown := post(t, s.Address(), "/v1/watch-session", fmt.Sprintf(`{"sessionId": %q}`, id))
	require.Equal(t, "expired", unknown["code"])
}

// watchSession watches a session, and returns a function that waits for the next event.
func watchSession(t testing.TB, address string, id any) (next func() string) {
	t.Helper()
	response, err := http.DefaultClient.Do(newPost(t, address, "/v1/watch-session", fmt.Sprintf(`{"sessionId": %q}`, id)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	return func() string {
		for lines.Scan() {
			if !strings.Contains(lines.Text(), `"alive"`) {
				return lines.Text()
			}
		}
		require.NoError(t, lines.Err())
		return ""
	}
}

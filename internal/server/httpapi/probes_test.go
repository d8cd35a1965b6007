package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server/httpapi"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/testserver"
)

func start(t *testing.T, ready httpapi.Probes) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := httpapi.ProbeServer(ready, metrics.New("test", "").Handler())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, testserver.Receive(t, ended), http.ErrServerClosed)
	})
	return l.Addr().String()
}

func always(context.Context) (bool, string) { return true, "" }

func request(t *testing.T, method, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// A member that is not ready is alive. Other paths and methods do not exist.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		ready        bool
		reason       string
		method, path string
		status       int
		body         string
	}{
		{"live", true, "", "GET", "/livez", 200, "ok\n"},
		{"live although not ready", false, "there is no leader", "GET", "/livez", 200, "ok\n"},
		{"ready", true, "", "GET", "/readyz", 200, "ok\n"},
		{"ready with a limit", true, "locks in efficiency mode only", "GET", "/readyz", 200,
			"ok: locks in efficiency mode only\n"},
		{"not ready", false, "there is\nno leader", "GET", "/readyz", 503, "not ready: there is; no leader\n"},
		{"head", false, "there is no leader", "HEAD", "/readyz", 503, ""},
		{"post", true, "", "POST", "/readyz", 405, "use GET\n"},
		{"a call of the API", true, "", "POST", "/v1/acquire", 404,
			"not found; the paths are /livez, /readyz and /metrics\n"},
		{"root", true, "", "GET", "/", 404, "not found; the paths are /livez, /readyz and /metrics\n"},
		{"metrics by post", true, "", "POST", "/metrics", 404, "not found; the paths are /livez, /readyz and /metrics\n"},
		{"below", true, "", "GET", "/readyz/x", 404, "not found; the paths are /livez, /readyz and /metrics\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			address := start(t, func(context.Context) (bool, string) { return c.ready, c.reason })
			status, body := request(t, c.method, "http://"+address+c.path)
			require.Equal(t, c.status, status)
			require.Equal(t, c.body, body)
		})
	}
}

// The port of the probes also serves the metrics.
func TestMetrics(t *testing.T) {
	t.Parallel()
	status, body := request(t, "GET", "http://"+start(t, always)+metrics.Path)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "leased_grants_total")
}

// Idle connections do not keep a supervisor from its answer.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	address := start(t, always)
	for range 500 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
	}
	status, _ := request(t, http.MethodGet, "http://"+address+"/livez")
	require.Equal(t, 200, status)
}

// A request with too many headers, and one that never ends, end without an answer of
// the handler.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	address := start(t, always)
	for name, text := range map[string]string{
		"headers":    "GET /livez HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n",
		"unfinished": "GET /livez HTTP/1.1\r\nHost: x\r\n",
	} {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		_, _ = io.WriteString(c, text) // may fail: the server closes early
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		answer, err := io.ReadAll(c)
		require.False(t, isTimeout(err), name)
		require.NotContains(t, string(answer), "200 OK", name)
	}
}

// A connection serves one request.
func TestConnectionServesOneRequest(t *testing.T) {
	t.Parallel()
	c, err := net.Dial("tcp", start(t, always))
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, strings.Repeat("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", 2))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	answer, err := io.ReadAll(c)
	require.False(t, isTimeout(err))
	require.Equal(t, 1, strings.Count(string(answer), "200 OK"))
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

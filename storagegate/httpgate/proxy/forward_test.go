package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/httpgate"
	"github.com/leased-project/leased/storagegate/httpgate/proxy"
)

func TestLongBodiesAreStreamed(t *testing.T) {
	long := strings.Repeat("0123456789", 1000)
	upstream := &service{values: map[string]string{}}
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			upstream.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = w.Write(body)
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	g := newRig(t, echo, func(c *proxy.Config) { c.Buffer = 100 })
	for _, size := range []int{0, 99, 100, 101, len(long)} {
		answer, err := g.send(t.Context(), http.MethodPut, orders, 1, long[:size])
		require.NoError(t, err)
		require.Equal(t, long[:size], answer)
	}
	require.Eventually(t, func() bool { return len(g.Flights()) == 0 }, patient, tick)
}

// A client that leaves in the middle of a long answer does not close the
// resource: the proxy reads on.
func TestLongAnswerIsReadToItsEnd(t *testing.T) {
	rest := make(chan struct{})
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Write(make([]byte, 200))
		w.(http.Flusher).Flush()
		<-rest
		w.Write(make([]byte, 10<<20))
	})
	g := newRig(t, upstream, func(c *proxy.Config) { c.Buffer = 100 })
	r, err := g.request(t.Context(), http.MethodPut, orders, 1, strings.NewReader("x"))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.Len(t, g.Flights(), 1, "the service is not done while it answers")
	resp.Body.Close()
	close(rest)
	require.Eventually(t, func() bool { return len(g.Flights()) == 0 }, patient, tick)
	require.NoError(t, g.Enter(t.Context(), orders, 2))
}

// longAnswer answers writes with more than all buffers on the way hold.
func longAnswer(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	if r.Method != http.MethodPut {
		return
	}
	chunk := make([]byte, 1<<20)
	for range 32 {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// deafClient sends a write with token 1, keeps its connection, and reads no more
// than the first byte of the answer.
func deafClient(t *testing.T, g *rig) {
	t.Helper()
	client, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	_, err = io.WriteString(client, "PUT /?name=orders/42 HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	_, err = io.ReadFull(client, make([]byte, 1))
	require.NoError(t, err)
}

// A client that does not read a long answer must not hold up the resource.
func TestClientThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	g := newRig(t, http.HandlerFunc(longAnswer), func(c *proxy.Config) {
		c.Buffer, c.ReadTimeout, c.WaitTimeout = 100, 10*time.Millisecond, 40*time.Second
	})
	deafClient(t, g)
	require.NoError(t, g.Enter(t.Context(), orders, 2))
	require.Empty(t, g.Flights(), "the service has answered")
}

// stuckWriter is the answer to a client that does not read.
type stuckWriter struct {
	http.ResponseWriter
	writing chan struct{} // a write has begun
	end     chan struct{}
}

func (w stuckWriter) Write(p []byte) (int, error) {
	select {
	case w.writing <- struct{}{}:
	default:
	}
	<-w.end
	return len(p), nil
}

// An operator can give up a request whose client does not read.
func TestAbandonedWhileTheClientDoesNotRead(t *testing.T) {
	g := newRig(t, http.HandlerFunc(longAnswer), func(c *proxy.Config) { c.Buffer = 100 })
	r, err := g.request(t.Context(), http.MethodPut, orders, 1, http.NoBody)
	require.NoError(t, err)
	w := stuckWriter{httptest.NewRecorder(), make(chan struct{}, 1), make(chan struct{})}
	served := inBackground(func() error { g.ServeHTTP(w, r); return nil })
	<-w.writing
	require.ErrorIs(t, g.Reopen(t.Context(), orders, false), proxy.ErrInFlight)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	require.NoError(t, g.Reopen(ctx, orders, true))
	require.NoError(t, g.Enter(t.Context(), orders, 2))
	require.Empty(t, g.Flights())
	close(w.end)
	require.NoError(t, <-served)
}

func TestUpgradesAndOverridesDoNotSlipThrough(t *testing.T) {
	g := newRig(t, &service{values: map[string]string{}})
	require.NoError(t, g.Enter(t.Context(), orders, 5))
	try := func(method, query string, header, value string) error {
		r, err := g.request(t.Context(), method, orders, fencing.None, nil)
		require.NoError(t, err)
		r.URL.RawQuery += query
		if header != "" {
			r.Header.Set(header, value)
		}
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		return httpgate.Check(resp)
	}
	require.NoError(t, try("GET", "", "", ""))
	require.ErrorIs(t, try("GET", "", "X-HTTP-Method-Override", "DELETE"), fencing.ErrNoToken)
	require.ErrorIs(t, try("GET", "&_method=DELETE", "", ""), fencing.ErrNoToken)
	require.ErrorIs(t, try("GET", "&%5Fmethod=DELETE", "", ""), fencing.ErrNoToken, "whatever way it is written")
	require.ErrorIs(t, try("GET", "", "X_HTTP_Method_Override", "DELETE"), fencing.ErrNoToken)
	require.ErrorIs(t, try("POST", "", "", ""), fencing.ErrNoToken)
	require.ErrorContains(t, try("GET", "", "Upgrade", "websocket"), "501")
}

func TestOneJournalOneProxy(t *testing.T) {
	var config proxy.Config
	newRig(t, http.NotFoundHandler(), func(c *proxy.Config) { config = *c })
	_, err := proxy.Open(config)
	require.ErrorContains(t, err, "another program has the journal open")
}

func TestConfigIsChecked(t *testing.T) {
	good := proxy.Config{Upstream: &url.URL{Scheme: "http", Host: "localhost:1"}, Resource: byName, Journal: filepath.Join(t.TempDir(), "j.db"), Now: time.Now}
	for name, spoil := range map[string]func(*proxy.Config){
		"upstream": func(c *proxy.Config) { c.Upstream = nil },
		"no host":  func(c *proxy.Config) { c.Upstream = &url.URL{Scheme: "http"} },
		"scheme":   func(c *proxy.Config) { c.Upstream = &url.URL{Scheme: "ftp", Host: "x"} },
		"query":    func(c *proxy.Config) { c.Upstream = &url.URL{Scheme: "http", Host: "x", RawQuery: "a=b"} },
		"resource": func(c *proxy.Config) { c.Resource = nil },
		"clock":    func(c *proxy.Config) { c.Now = nil },
		"journal":  func(c *proxy.Config) { c.Journal = "" },
		"timeout":  func(c *proxy.Config) { c.AnswerTimeout = -1 },
		"reading":  func(c *proxy.Config) { c.ReadTimeout = -1 },
		"buffer":   func(c *proxy.Config) { c.Buffer = -1 },
		"status":   func(c *proxy.Config) { c.UnknownStatus = []int{7} },
	} {
		config := good
		spoil(&config)
		_, err := proxy.Open(config)
		require.Error(t, err, name)
	}
}

func TestClosedErrorMatches(t *testing.T) {
	require.True(t, errors.Is(&proxy.ClosedError{}, proxy.ErrClosed))
}

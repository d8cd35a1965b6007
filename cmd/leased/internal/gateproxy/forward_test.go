package gateproxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/gateproxy"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/httpgate"
)

func TestLongBodiesAreStreamed(t *testing.T) {
	long := strings.Repeat("0123456789", 1000)
	upstream := &servicetest.Store{}
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
	g := newFixture(t, echo, func(c *gateproxy.Config) { c.Buffer = 100 })
	for _, size := range []int{0, 99, 100, 101, len(long)} {
		response, err := g.Send(t.Context(), http.MethodPut, orders, 1, long[:size])
		require.NoError(t, err)
		require.Equal(t, long[:size], response)
	}
	require.Eventually(t, func() bool { return len(g.proxy.Flights()) == 0 }, timeout, tick)
}

// A client that leaves in the middle of a long response does not close the
// resource: the proxy reads the rest.
func TestLongResponseIsReadCompletely(t *testing.T) {
	rest := make(chan struct{})
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Write(make([]byte, 200))
		w.(http.Flusher).Flush()
		<-rest
		w.Write(make([]byte, 10<<20))
	})
	g := newFixture(t, upstream, func(c *gateproxy.Config) { c.Buffer = 100 })
	r, err := g.Request(t.Context(), http.MethodPut, orders, 1, strings.NewReader("x"))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.Len(t, g.proxy.Flights(), 1, "the service is not done before the response is complete")
	resp.Body.Close()
	close(rest)
	require.Eventually(t, func() bool { return len(g.proxy.Flights()) == 0 }, timeout, tick)
	require.NoError(t, g.Enter(t.Context(), orders, 2))
}

// A client may disconnect as soon as the service has its whole body. From then on reading
// the body fails, but the response must not be lost.
func TestBodyIsNotReadBeyondItsLength(t *testing.T) {
	g := newFixture(t, &servicetest.Store{}, func(c *gateproxy.Config) { c.Buffer = 100 })
	long := strings.Repeat("0123456789", 20)
	body := io.MultiReader(strings.NewReader(long), iotest.ErrReader(http.ErrBodyReadAfterClose))
	r, err := g.Request(t.Context(), http.MethodPut, orders, 1, body)
	require.NoError(t, err)
	r.ContentLength = int64(len(long))
	w := httptest.NewRecorder()
	g.proxy.ServeHTTP(w, r)
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Empty(t, g.proxy.Flights())
}

// longResponse responds to writes with more data than all buffers together hold.
func longResponse(w http.ResponseWriter, r *http.Request) {
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

// startSlowReader sends a write with token 1, keeps the connection open, and
// reads only the first byte of the response.
func startSlowReader(t *testing.T, g *fixture) {
	t.Helper()
	client, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	_, err = io.WriteString(client,
		"PUT /?name=orders/42 HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	_, err = io.ReadFull(client, make([]byte, 1))
	require.NoError(t, err)
}

// A client that does not read a long response must not block the resource.
func TestSlowReaderDoesNotBlockTheResource(t *testing.T) {
	g := newFixture(t, http.HandlerFunc(longResponse), func(c *gateproxy.Config) {
		c.Buffer, c.ReadTimeout, c.WaitTimeout = 100, 10*time.Millisecond, 40*time.Second
	})
	startSlowReader(t, g)
	require.NoError(t, g.Enter(t.Context(), orders, 2))
	require.Empty(t, g.proxy.Flights(), "the service has responded")
}

// stuckWriter is the response to a client that does not read.
type stuckWriter struct {
	http.ResponseWriter
	writing chan struct{} // a write has started
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

// An operator can abandon a request whose client does not read.
func TestAbandonRequestWithSlowReader(t *testing.T) {
	g := newFixture(t, http.HandlerFunc(longResponse), func(c *gateproxy.Config) { c.Buffer = 100 })
	r, err := g.Request(t.Context(), http.MethodPut, orders, 1, http.NoBody)
	require.NoError(t, err)
	w := stuckWriter{httptest.NewRecorder(), make(chan struct{}, 1), make(chan struct{})}
	served := inBackground(func() error { g.proxy.ServeHTTP(w, r); return nil })
	testserver.Receive(t, w.writing)
	require.ErrorIs(t, g.proxy.Reopen(t.Context(), orders, false), gateproxy.ErrInFlight)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	require.NoError(t, g.proxy.Reopen(ctx, orders, true))
	require.NoError(t, g.Enter(t.Context(), orders, 2))
	require.Empty(t, g.proxy.Flights())
	close(w.end)
	require.NoError(t, testserver.Receive(t, served))
}

func TestUpgradesAndOverridesAreGated(t *testing.T) {
	g := newFixture(t, &servicetest.Store{})
	require.NoError(t, g.Enter(t.Context(), orders, 5))
	try := func(method, query string, header, value string) error {
		r, err := g.Request(t.Context(), method, orders, fencing.None, nil)
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
	require.ErrorIs(t, try("GET", "&%5Fmethod=DELETE", "", ""), fencing.ErrNoToken, "an encoded parameter name")
	require.ErrorIs(t, try("GET", "", "X_HTTP_Method_Override", "DELETE"), fencing.ErrNoToken)
	require.ErrorIs(t, try("POST", "", "", ""), fencing.ErrNoToken)
	require.ErrorContains(t, try("GET", "", "Upgrade", "websocket"), "501")
	require.ErrorIs(t, try("POST", "", "Upgrade", "h2c"), fencing.ErrNoToken)
	require.ErrorContains(t, try("CONNECT", "", "Upgrade", "h2c"), "501")
}

// Java's client offers HTTP/2 with each request to an http URL.
func TestOfferOfHTTP2IsIgnored(t *testing.T) {
	seen := make(chan http.Header, 1)
	g := newFixture(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }))
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		r, err := g.Request(t.Context(), method, orders, 1, http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Connection", "Upgrade, HTTP2-Settings")
		r.Header.Set("Upgrade", "h2c")
		r.Header.Set("HTTP2-Settings", "AAEAAEAA")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		header := testserver.Receive(t, seen)
		require.Empty(t, header["Upgrade"])
		require.Empty(t, header["Http2-Settings"])
	}
}

func TestJournalIsLocked(t *testing.T) {
	var config gateproxy.Config
	newFixture(t, http.NotFoundHandler(), func(c *gateproxy.Config) { config = *c })
	_, err := gateproxy.Open(config)
	require.ErrorContains(t, err, "another program has the journal open")
}

func TestInvalidConfigs(t *testing.T) {
	var valid gateproxy.Config
	newFixture(t, http.NotFoundHandler(), func(c *gateproxy.Config) { valid = *c })
	require.NoError(t, valid.Validate())
	for flag, change := range map[string]func(*gateproxy.Config){
		"--upstream is required": func(c *gateproxy.Config) { c.Upstream = nil },
		`"http:" is not`:         func(c *gateproxy.Config) { c.Upstream = &url.URL{Scheme: "http"} },
		"an http or https URL":   func(c *gateproxy.Config) { c.Upstream = &url.URL{Scheme: "ftp", Host: "x"} },
		"query or fragment": func(c *gateproxy.Config) {
			c.Upstream = &url.URL{Scheme: "http", Host: "x", RawQuery: "a=b"}
		},
		"--resource-path":  func(c *gateproxy.Config) { c.Resource = nil },
		"--journal":        func(c *gateproxy.Config) { c.Journal = "" },
		"--answer-timeout": func(c *gateproxy.Config) { c.AnswerTimeout = -1 },
		"--wait-timeout":   func(c *gateproxy.Config) { c.WaitTimeout = 0 },
		"--read-timeout":   func(c *gateproxy.Config) { c.ReadTimeout = -1 },
		"--buffer":         func(c *gateproxy.Config) { c.Buffer = -1 },
		"--max-jump":       func(c *gateproxy.Config) { c.Rule.MaxJump = 0 },
		"--unknown-status": func(c *gateproxy.Config) { c.UnknownStatus = []int{7} },
	} {
		config := valid
		change(&config)
		require.ErrorContains(t, config.Validate(), flag)
	}
}

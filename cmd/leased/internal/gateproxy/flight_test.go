package gateproxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/gateproxy"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/httpgate"
)

const (
	orders  = fencing.Resource("orders/42")
	timeout = time.Minute
	tick    = time.Millisecond
)

// controlled is a service that waits for the test before it responds to a write
// of "old".
type controlled struct {
	servicetest.Store
	arrived chan struct{}                            // the service has received "old"
	respond chan func(http.ResponseWriter)           // how it responds
	counts  map[string]*atomic.Int64                 // requests by body
	onWrite func(w http.ResponseWriter, body string) // if set, handles all writes
}

func newControlled() *controlled {
	return &controlled{arrived: make(chan struct{}, 1), respond: make(chan func(http.ResponseWriter), 1),
		counts: map[string]*atomic.Int64{"old": {}, "new": {}, "": {}}}
}

func (c *controlled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		c.Store.ServeHTTP(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if count := c.counts[string(body)]; count != nil {
		count.Add(1)
	}
	if c.onWrite != nil {
		c.onWrite(w, string(body))
		return
	}
	if string(body) == "old" {
		c.arrived <- struct{}{}
		if respond := <-c.respond; respond != nil {
			respond(w)
		}
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	c.Store.ServeHTTP(w, r)
}

// release ends waiting requests of a failed test.
func (c *controlled) release() { close(c.respond) }

func respondOK(http.ResponseWriter) {}

func breakConnection(w http.ResponseWriter) { panic(http.ErrAbortHandler) }

func status(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(code) }
}

// requireClosed requires err to say that the resource is closed.
func requireClosed(t *testing.T, err error) {
	t.Helper()
	require.ErrorContains(t, err, "is closed")
	require.ErrorContains(t, err, "503")
}

func mark(t *testing.T, g *fixture) fencing.Token {
	t.Helper()
	m, err := g.Mark(t.Context(), orders)
	require.NoError(t, err)
	return m
}

func inBackground(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// A newer token must wait for an older request in flight.
func TestNewerRequestWaitsForTheFlight(t *testing.T) {
	upstream := newControlled()
	g := newFixture(t, upstream)
	old := inBackground(func() error { return g.Write(t.Context(), orders, 1, "old") })
	testserver.Receive(t, upstream.arrived)
	next := inBackground(func() error { return g.Write(t.Context(), orders, 2, "new") })
	enter := inBackground(func() error { return g.Enter(t.Context(), orders, 3) })
	require.NoError(t, g.Write(t.Context(), "orders/43", 1, "new"), "other resources do not wait")
	value, err := g.Read(t.Context(), orders)
	require.NoError(t, err, "a read without a token passes")
	require.Empty(t, value)
	require.Equal(t, int64(1), upstream.counts["new"].Load(), "only the request for the other resource")
	require.Equal(t, fencing.Token(1), mark(t, g))
	upstream.respond <- respondOK
	require.NoError(t, testserver.Receive(t, old))
	testserver.Receive(t, enter)
	if err := testserver.Receive(t, next); err != nil {
		require.ErrorIs(t, err, fencing.ErrStale, "the two newer requests may run in any order")
	}
	require.Equal(t, fencing.Token(3), mark(t, g))
}

// The service does not respond to the older request in time. Its client gets an
// error, and no newer request is sent until the response arrives.
func TestUnansweredRequestClosesTheResourceUntilTheResponse(t *testing.T) {
	upstream := newControlled()
	var config gateproxy.Config
	g := newFixture(t, upstream, func(c *gateproxy.Config) {
		config = *c
		c.AnswerTimeout, c.WaitTimeout = 50*time.Millisecond, 50*time.Millisecond
	})
	require.ErrorIs(t, g.Write(t.Context(), orders, 1, "old"), storagegate.ErrUncertain)
	requireClosed(t, g.Write(t.Context(), orders, 2, "new"))
	requireClosed(t, g.Enter(t.Context(), orders, 2))
	require.Zero(t, upstream.counts["new"].Load())
	require.Equal(t, fencing.Token(1), mark(t, g), "a request that was not admitted must not raise the mark")
	flights := g.proxy.Flights()
	require.Len(t, flights, 1)
	require.False(t, flights[0].Closed, "the response may still arrive")
	upstream.respond <- respondOK
	require.Eventually(t, func() bool { return len(g.proxy.Flights()) == 0 }, timeout, tick)
	require.NoError(t, g.proxy.Close(t.Context()))
	g = start(t, config) // with longer timeouts
	require.NoError(t, g.Write(t.Context(), orders, 2, "new"))
	require.ErrorIs(t, g.Write(t.Context(), orders, 1, "old"), fencing.ErrStale)
}

// An unknown outcome closes the resource until an operator reopens it, even after
// a restart.
func TestUnknownOutcomeClosesTheResourceUntilReopened(t *testing.T) {
	for name, respond := range map[string]func(http.ResponseWriter){
		"broken connection": breakConnection,
		"bad gateway":       status(http.StatusBadGateway),
		"gateway timeout":   status(http.StatusGatewayTimeout),
		"unavailable":       status(http.StatusServiceUnavailable),
		"edge timed out":    status(522),
		"broken response": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			w.Write([]byte("half of it"))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := newControlled()
			var config gateproxy.Config
			first := newFixture(t, upstream, func(c *gateproxy.Config) { config = *c })
			upstream.respond <- respond
			require.ErrorIs(t, first.Write(t.Context(), orders, 5, "old"), storagegate.ErrUncertain)
			requireClosed(t, first.Write(t.Context(), orders, 6, "new"))
			require.NoError(t, first.proxy.Close(t.Context()))

			second := start(t, config)
			requireClosed(t, second.Write(t.Context(), orders, 6, "new"))
			requireClosed(t, second.Write(t.Context(), orders, 5, "new"))
			requireClosed(t, second.Enter(t.Context(), orders, 6))
			require.Zero(t, upstream.counts["new"].Load())
			require.Equal(t, int64(1), upstream.counts["old"].Load(), "a request is sent once")
			_, err := second.Read(t.Context(), orders)
			require.NoError(t, err)
			require.NoError(t, second.Write(t.Context(), "orders/43", 1, "new"), "other resources are open")

			require.NoError(t, second.proxy.Reopen(t.Context(), orders, false))
			require.ErrorIs(t, second.Write(t.Context(), orders, 4, "new"), fencing.ErrStale, "Reopen must not lower the mark")
			require.NoError(t, second.Write(t.Context(), orders, 6, "new"))
			require.ErrorIs(t, second.proxy.Reopen(t.Context(), orders, false), gateproxy.ErrNoFlight)
			require.NoError(t, second.proxy.Close(t.Context()))
			require.Empty(t, start(t, config).proxy.Flights(), "the resource must stay open")
		})
	}
}

// net/http repeats a request if a reused connection breaks and the request looks
// idempotent. The proxy must prevent that.
func TestRequestIsSentOnce(t *testing.T) {
	upstream := newControlled()
	g := newFixture(t, upstream)
	require.NoError(t, g.Write(t.Context(), orders, 1, "new"), "now a connection could be reused")
	upstream.onWrite = func(w http.ResponseWriter, _ string) { breakConnection(w) }
	r, err := g.Request(t.Context(), http.MethodPut, orders, 1, nil)
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "1")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.ErrorIs(t, httpgate.Check(resp), storagegate.ErrUncertain)
	require.Equal(t, int64(1), upstream.counts[""].Load())
}

// An error response is a known outcome.
func TestErrorResponseIsAKnownOutcome(t *testing.T) {
	upstream := newControlled()
	upstream.onWrite = func(w http.ResponseWriter, body string) { http.Error(w, "no", 500) }
	g := newFixture(t, upstream)
	for token := fencing.Token(1); token < 4; token++ {
		response, err := g.Send(t.Context(), http.MethodPut, orders, token, "new")
		require.NoError(t, err)
		require.Equal(t, "no\n", response)
	}
	require.Empty(t, g.proxy.Flights())
}

// A service that cannot be reached did not receive the request.
func TestUnreachableServiceLeavesTheResourceOpen(t *testing.T) {
	upstream := httptest.NewServer(http.NotFoundHandler())
	g := newFixture(t, http.NotFoundHandler(), func(c *gateproxy.Config) { c.Upstream, _ = url.Parse(upstream.URL) })
	upstream.Close()
	for range 2 {
		err := g.Write(t.Context(), orders, 1, "new")
		require.ErrorContains(t, err, "502")
		require.ErrorContains(t, err, "nothing was written")
	}
	require.Empty(t, g.proxy.Flights())
}

// copyOf copies the journal from disk, as a crash would leave it.
func copyOf(t *testing.T, journal string) string {
	t.Helper()
	data, err := os.ReadFile(journal)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "copy.db")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// When the service receives a request, its mark and its flight are on disk. After
// a crash of the proxy at that moment the resource is closed and the mark raised.
func TestMarkAndFlightAreOnDiskBeforeTheRequestIsSent(t *testing.T) {
	upstream := newControlled()
	var config gateproxy.Config
	g := newFixture(t, upstream, func(c *gateproxy.Config) { config = *c })
	for _, token := range []fencing.Token{fencing.None, 7} {
		done := inBackground(func() error { return g.Write(t.Context(), orders, token, "old") })
		testserver.Receive(t, upstream.arrived)
		after := config
		after.Journal = copyOf(t, config.Journal)
		crashed := start(t, after)
		require.Equal(t, token, mark(t, crashed))
		flights := crashed.proxy.Flights()
		require.Len(t, flights, 1)
		require.True(t, flights[0].Closed)
		require.Equal(t, token, flights[0].Token)
		requireClosed(t, crashed.Write(t.Context(), orders, 8, "new"))
		upstream.respond <- respondOK
		require.NoError(t, testserver.Receive(t, done))

		after.Journal = copyOf(t, config.Journal)
		require.Empty(t, start(t, after).proxy.Flights(),
			"the journal must record the end of a request before the client gets the response")
	}
}

// If the client of a request in flight leaves, the request must continue, and the
// proxy must wait for the response.
func TestRequestContinuesWithoutItsClient(t *testing.T) {
	upstream := newControlled()
	g := newFixture(t, upstream)
	ctx, cancel := context.WithCancel(t.Context())
	done := inBackground(func() error { return g.Write(ctx, orders, 1, "old") })
	testserver.Receive(t, upstream.arrived)
	cancel()
	require.ErrorIs(t, testserver.Receive(t, done), context.Canceled)
	testserver.Receive(t, g.gone)
	next := inBackground(func() error { return g.Write(t.Context(), orders, 2, "new") })
	upstream.respond <- respondOK
	require.NoError(t, testserver.Receive(t, next))
	value, err := g.Read(t.Context(), orders)
	require.NoError(t, err)
	require.Equal(t, "new", value, "the older write must be applied first")
	require.Empty(t, g.proxy.Flights())
}

// A holder that is paused in the middle of its upload must not block others.
func TestIncompleteBodyDoesNotBlockTheResource(t *testing.T) {
	upstream := newControlled()
	g := newFixture(t, upstream)
	upload, client := io.Pipe()
	r, err := g.Request(t.Context(), http.MethodPut, orders, 1, upload)
	require.NoError(t, err)
	done := inBackground(func() error {
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return httpgate.Check(resp)
	})
	_, err = client.Write([]byte("ol"))
	require.NoError(t, err)
	require.NoError(t, g.Write(t.Context(), orders, 2, "new"))
	_, err = client.Write([]byte("d"))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.ErrorIs(t, testserver.Receive(t, done), fencing.ErrStale)
	require.Zero(t, upstream.counts["old"].Load())
}

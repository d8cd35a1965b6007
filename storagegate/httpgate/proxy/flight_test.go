package proxy_test

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

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/httpgate"
	"github.com/leased-project/leased/storagegate/httpgate/proxy"
)

const (
	orders  = fencing.Resource("orders/42")
	patient = time.Minute
	tick    = time.Millisecond
)

// gatekeeper is a service whose answer to the body "old" the test decides.
type gatekeeper struct {
	service
	arrived chan struct{}                            // the request "old" is at work
	decide  chan func(http.ResponseWriter)           // what becomes of it
	counts  map[string]*atomic.Int64                 // requests by body
	onWrite func(w http.ResponseWriter, body string) // if set, replaces all that
}

func newGatekeeper() *gatekeeper {
	return &gatekeeper{service: service{values: map[string]string{}}, arrived: make(chan struct{}, 1),
		decide: make(chan func(http.ResponseWriter), 1), counts: map[string]*atomic.Int64{"old": {}, "new": {}, "": {}}}
}

func (g *gatekeeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		g.service.ServeHTTP(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if count := g.counts[string(body)]; count != nil {
		count.Add(1)
	}
	if g.onWrite != nil {
		g.onWrite(w, string(body))
		return
	}
	if string(body) == "old" {
		g.arrived <- struct{}{}
		if decision := <-g.decide; decision != nil {
			decision(w)
		}
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	g.service.ServeHTTP(w, r)
}

// release lets a failed test end.
func (g *gatekeeper) release() { close(g.decide) }

func answerOK(http.ResponseWriter) {}

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

func mark(t *testing.T, g *rig) fencing.Token {
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

// While an older request is at work, a newer token must wait for it.
func TestNewerTokenDoesNotOvertake(t *testing.T) {
	upstream := newGatekeeper()
	g := newRig(t, upstream)
	old := inBackground(func() error { return g.Write(t.Context(), orders, 1, "old") })
	<-upstream.arrived
	next := inBackground(func() error { return g.Write(t.Context(), orders, 2, "new") })
	enter := inBackground(func() error { return g.Enter(t.Context(), orders, 3) })
	require.NoError(t, g.Write(t.Context(), "orders/43", 1, "new"), "other resources do not wait")
	value, err := g.Read(t.Context(), orders)
	require.NoError(t, err, "a read without a token passes")
	require.Empty(t, value)
	require.Equal(t, int64(1), upstream.counts["new"].Load(), "the one for the other resource")
	require.Equal(t, fencing.Token(1), mark(t, g))
	upstream.decide <- answerOK
	require.NoError(t, <-old)
	<-enter
	if err := <-next; err != nil {
		require.ErrorIs(t, err, fencing.ErrStale, "the two newer ones may come in any order")
	}
	require.Equal(t, fencing.Token(3), mark(t, g))
}

// The older request is not answered in time. Its client is told, and nothing
// newer is let through until the answer comes.
func TestUnansweredRequestClosesUntilItIsAnswered(t *testing.T) {
	upstream := newGatekeeper()
	g := newRig(t, upstream, func(c *proxy.Config) { c.AnswerTimeout, c.WaitTimeout = 50*time.Millisecond, 50*time.Millisecond })
	require.ErrorIs(t, g.Write(t.Context(), orders, 1, "old"), storagegate.ErrUncertain)
	requireClosed(t, g.Write(t.Context(), orders, 2, "new"))
	requireClosed(t, g.Enter(t.Context(), orders, 2))
	require.Zero(t, upstream.counts["new"].Load())
	require.Equal(t, fencing.Token(1), mark(t, g), "who was not let through has raised nothing")
	flights := g.Flights()
	require.Len(t, flights, 1)
	require.False(t, flights[0].Closed, "it may yet be answered")
	upstream.decide <- answerOK
	require.Eventually(t, func() bool { return len(g.Flights()) == 0 }, patient, tick)
	require.NoError(t, g.Write(t.Context(), orders, 2, "new"))
	require.ErrorIs(t, g.Write(t.Context(), orders, 1, "old"), fencing.ErrStale)
}

// What leaves the outcome open closes the resource, over a restart too, until
// an operator decides.
func TestUnknownOutcomeClosesUntilReopened(t *testing.T) {
	for name, decide := range map[string]func(http.ResponseWriter){
		"broken connection": breakConnection,
		"bad gateway":       status(http.StatusBadGateway),
		"gateway timeout":   status(http.StatusGatewayTimeout),
		"unavailable":       status(http.StatusServiceUnavailable),
		"edge timed out":    status(522),
		"broken answer": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			w.Write([]byte("half of it"))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := newGatekeeper()
			var config proxy.Config
			first := newRig(t, upstream, func(c *proxy.Config) { config = *c })
			upstream.decide <- decide
			require.ErrorIs(t, first.Write(t.Context(), orders, 5, "old"), storagegate.ErrUncertain)
			requireClosed(t, first.Write(t.Context(), orders, 6, "new"))
			require.NoError(t, first.Close(t.Context()))

			second := start(t, config)
			requireClosed(t, second.Write(t.Context(), orders, 6, "new"))
			requireClosed(t, second.Write(t.Context(), orders, 5, "new"))
			requireClosed(t, second.Enter(t.Context(), orders, 6))
			require.Zero(t, upstream.counts["new"].Load())
			require.Equal(t, int64(1), upstream.counts["old"].Load(), "a request is sent once")
			_, err := second.Read(t.Context(), orders)
			require.NoError(t, err)
			require.NoError(t, second.Write(t.Context(), "orders/43", 1, "new"), "other resources are open")

			require.NoError(t, second.Reopen(t.Context(), orders, false))
			require.ErrorIs(t, second.Write(t.Context(), orders, 4, "new"), fencing.ErrStale, "to reopen does not lower the mark")
			require.NoError(t, second.Write(t.Context(), orders, 6, "new"))
			require.ErrorIs(t, second.Reopen(t.Context(), orders, false), proxy.ErrNoFlight)
			require.NoError(t, second.Close(t.Context()))
			require.Empty(t, start(t, config).Flights(), "it stays open")
		})
	}
}

// net/http sends a request again by itself if a used connection breaks and the
// request looks repeatable. The proxy must not let it.
func TestRequestIsSentOnce(t *testing.T) {
	upstream := newGatekeeper()
	g := newRig(t, upstream)
	require.NoError(t, g.Write(t.Context(), orders, 1, "new"), "now there is a connection to use again")
	upstream.onWrite = func(w http.ResponseWriter, _ string) { breakConnection(w) }
	r, err := g.request(t.Context(), http.MethodPut, orders, 1, nil)
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "1")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.ErrorIs(t, httpgate.Check(resp), storagegate.ErrUncertain)
	require.Equal(t, int64(1), upstream.counts[""].Load())
}

// An answer that says no is an answer.
func TestRefusalOfTheServiceIsAnOutcome(t *testing.T) {
	upstream := newGatekeeper()
	upstream.onWrite = func(w http.ResponseWriter, body string) { http.Error(w, "no", 500) }
	g := newRig(t, upstream)
	for token := fencing.Token(1); token < 4; token++ {
		answer, err := g.send(t.Context(), http.MethodPut, orders, token, "new")
		require.NoError(t, err)
		require.Equal(t, "no\n", answer)
	}
	require.Empty(t, g.Flights())
}

// A service that cannot be reached has not got the request.
func TestUnreachableServiceLeavesTheResourceOpen(t *testing.T) {
	upstream := httptest.NewServer(http.NotFoundHandler())
	g := newRig(t, http.NotFoundHandler(), func(c *proxy.Config) { c.Upstream, _ = url.Parse(upstream.URL) })
	upstream.Close()
	for range 2 {
		err := g.Write(t.Context(), orders, 1, "new")
		require.ErrorContains(t, err, "502")
		require.ErrorContains(t, err, "nothing was written")
	}
	require.Empty(t, g.Flights())
}

// copyOf copies the journal as it is on disk, as a crash would leave it.
func copyOf(t *testing.T, journal string) string {
	t.Helper()
	data, err := os.ReadFile(journal)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "copy.db")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// When the service sees a request, its mark and its flight are on disk: a crash
// of the proxy at that moment must leave the resource closed and the mark up.
func TestMarkAndFlightAreOnDiskBeforeTheRequestIsSent(t *testing.T) {
	upstream := newGatekeeper()
	var config proxy.Config
	g := newRig(t, upstream, func(c *proxy.Config) { config = *c })
	for _, token := range []fencing.Token{fencing.None, 7} {
		done := inBackground(func() error { return g.Write(t.Context(), orders, token, "old") })
		<-upstream.arrived
		after := config
		after.Journal = copyOf(t, config.Journal)
		crashed := start(t, after)
		require.Equal(t, token, mark(t, crashed))
		flights := crashed.Flights()
		require.Len(t, flights, 1)
		require.True(t, flights[0].Closed)
		require.Equal(t, token, flights[0].Token)
		requireClosed(t, crashed.Write(t.Context(), orders, 8, "new"))
		upstream.decide <- answerOK
		require.NoError(t, <-done)

		after.Journal = copyOf(t, config.Journal)
		require.Empty(t, start(t, after).Flights(), "an answered request is over on disk before its client hears of it")
	}
}

// The client of a request that is at work leaves. The request must go on, and
// its end be seen.
func TestClientThatLeavesChangesNothing(t *testing.T) {
	upstream := newGatekeeper()
	g := newRig(t, upstream)
	ctx, cancel := context.WithCancel(t.Context())
	done := inBackground(func() error { return g.Write(ctx, orders, 1, "old") })
	<-upstream.arrived
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	<-g.gone
	next := inBackground(func() error { return g.Write(t.Context(), orders, 2, "new") })
	upstream.decide <- answerOK
	require.NoError(t, <-next)
	value, err := g.Read(t.Context(), orders)
	require.NoError(t, err)
	require.Equal(t, "new", value, "the older write came first")
	require.Empty(t, g.Flights())
}

// A holder that is paused in the middle of its upload holds up nobody.
func TestHalfSentBodyHoldsNobodyUp(t *testing.T) {
	upstream := newGatekeeper()
	g := newRig(t, upstream)
	upload, client := io.Pipe()
	r, err := g.request(t.Context(), http.MethodPut, orders, 1, upload)
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
	require.ErrorIs(t, <-done, fencing.ErrStale)
	require.Zero(t, upstream.counts["old"].Load())
}

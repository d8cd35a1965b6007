package work

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

func TestPauseIsTheLongestGap(t *testing.T) {
	p, start := &pause{}, time.Now()
	for _, at := range []time.Duration{time.Hour, time.Hour + 3, time.Hour + 10, time.Hour + 12} {
		p.granted(load.Grant{At: start.Add(at)})
	}
	if p.longest != 7 {
		t.Errorf("the longest pause is %v, want 7ns: the time before the first grant is none", p.longest)
	}
}

// A pause that has not ended counts: without it, a service that grants nothing would have no pause.
func TestPauseWithoutGrants(t *testing.T) {
	p := &pause{last: time.Now().Add(-time.Minute)}
	longest, _, err := p.within(func() error { return nil })
	if err != nil || longest < time.Minute {
		t.Errorf("the longest pause is %v, %v", longest, err)
	}
}

func TestInParallel(t *testing.T) {
	var sum atomic.Int64
	if err := inParallel(4, 100, func(i int) error { sum.Add(int64(i)); return nil }); err != nil || sum.Load() != 4950 {
		t.Errorf("sum %d, error %v", sum.Load(), err)
	}
	failed := errors.New("full")
	if err := inParallel(2, 1000, func(int) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v, want %v", err, failed)
	}
	if err := inParallel(4, -1, func(int) error { return failed }); err != nil {
		t.Errorf("error %v without work", err)
	}
}

func TestMetrics(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("# HELP a_sum 7\na_sum 1.5e+01\na_bucket{le=\"1\"} 3\n"))
	}))
	defer server.Close()
	got, err := metrics(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	if err != nil || got["a_sum"] != 15 {
		t.Errorf("metrics %v, error %v", got, err)
	}
}

func TestLimited(t *testing.T) {
	cases := []params{{"leases": 100}, {"leases": 1000}, {"leases": 1000, "workers": 4}, {"workers": 256}}
	got := (&bench{Settings: Settings{Max: 100}}).limited(cases)
	require.Equal(t, []params{{"leases": 100}, {"leases": 100, "workers": 4}, {"workers": 256}}, got)
}

// A service that grants a lock twice at once is noticed.
func TestExclusion(t *testing.T) {
	for _, kind := range []string{"memory", "broken"} {
		peer := peers.Peer(&memory{})
		if kind == "broken" {
			peer = &twice{memory{}}
		}
		s := results.Sample{Work: "exclusion", Params: params{"workers": 4}, Figures: map[string]float64{}}
		b := &bench{Settings: Settings{Length: 100 * time.Millisecond}}
		err := measureExclusion(t.Context(), b, &target{peer: peer}, &s)
		require.Equal(t, kind == "broken", err != nil, "%s: %v", kind, err)
	}
}

// twice grants a lock to everyone.
type twice struct{ memory }

func (m *twice) Open(context.Context) (load.Client, error) { return m, nil }

func (m *twice) Acquire(context.Context, string) (load.Held, error) {
	return load.Held{Token: 1, Release: func(context.Context) error { return nil }}, nil
}

// A holder carries out orders and reports the first error.
func TestHoldOrders(t *testing.T) {
	var out bytes.Buffer
	orders := strings.NewReader(`{"Sessions":2,"Leases":1}{"Sessions":2,"Leases":1}`)
	require.NoError(t, holdOrders(t.Context(), new(memory).Open, orders, &out))
	require.Equal(t, "\"\"\n\"\"\n", out.String())
}

package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
	c := &cluster{endpoints: []string{strings.TrimPrefix(server.URL, "http://")}}
	got, err := c.metrics(t.Context(), 0)
	if err != nil || got["a_sum"] != 15 {
		t.Errorf("metrics %v, error %v", got, err)
	}
}

func TestUnknownCurve(t *testing.T) {
	if err := (&bench{}).all(t.Context(), "leases,nothing", ""); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("error %v", err)
	}
}

func TestUpTo(t *testing.T) {
	if got := (&bench{largest: 100}).upTo(1, 100, 1000); len(got) != 2 {
		t.Errorf("sizes %v", got)
	}
}

func TestDescribe(t *testing.T) {
	if got := describe(map[string]float64{results.Rate: 2, results.P50: 1}); got != "p50_ms 1, rate 2" {
		t.Errorf("%q", got)
	}
}

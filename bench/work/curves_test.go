package work

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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
		open := (&memory{}).Open
		if kind == "broken" {
			open = (&twice{memory{}}).Open
		}
		s := results.Sample{Work: "exclusion", Params: params{"workers": 4}, Figures: map[string]float64{}}
		b := &bench{Settings: Settings{Length: 100 * time.Millisecond}}
		err := measureExclusion(t.Context(), b, &target{cluster: &peers.Cluster{}, open: open}, &s)
		require.Equal(t, kind == "broken", err != nil, "%s: %v", kind, err)
	}
}

// twice grants a lock to everyone.
type twice struct{ memory }

func (m *twice) Open(context.Context) (load.Client, error) { return m, nil }

func (m *twice) Acquire(context.Context, string) (load.Held, error) {
	return load.Held{Token: 1, Release: func(context.Context) error { return nil }}, nil
}

// A holder says when it holds all leases, and keeps them until its input ends.
func TestHolder(t *testing.T) {
	work := load.Work{Kind: load.Hold, Workers: 1, Clients: 1, Leases: 1}
	text, err := json.Marshal(childSettings{Kind: "a", Work: work})
	require.NoError(t, err)
	kind := memoryKind("a", new([]string))
	service := new(memory)
	kind.Open = func([]string) load.Target { return service.Open }
	out, ready := io.Pipe()
	in, input := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Child(t.Context(), []peers.Kind{kind}, string(text), in, ready) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	require.False(t, service.lock.TryLock(), "the lease is held")
	require.NoError(t, input.Close())
	require.NoError(t, <-ended)
}

package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

func TestSelected(t *testing.T) {
	t.Parallel()
	all, err := selected(nil)
	require.NoError(t, err)
	require.Len(t, all, 7)
	some, err := selected([]string{"W1/256", "W7", "W1/1"})
	require.NoError(t, err)
	require.Len(t, some, 2)
	require.Equal(t, []params{{"workers": 256}, {"workers": 1}}, some[0].cases)
	require.Equal(t, "W7", some[1].name)
	for _, wrong := range []string{"W9", "W1/3"} {
		_, err = selected([]string{wrong})
		require.Error(t, err, wrong)
	}
}

func TestHandoffs(t *testing.T) {
	t.Parallel()
	second := int64(time.Second)
	parts := []part{
		{Begin: second, End: 3 * second, Holds: [][]int64{{0, second + 1, second + 2, second + 5}, {second + 3}}},
		{Begin: second, End: 3 * second, Holds: [][]int64{{second + 4, 4 * second}}},
	}
	// Within the two seconds the holders are a, a, b, c, a.
	require.InDelta(t, 3.0/2, handoffs(parts), 1e-9)
}

func TestFailover(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	f := &failover{next: make([]time.Duration, 2), missing: 2, complete: make(chan struct{})}
	f.granted(load.Grant{Worker: 0, Requested: at(0), At: at(1)})
	f.killed = at(10)
	f.granted(load.Grant{Worker: 0, Requested: at(9), At: at(11)}) // was on its way
	require.Equal(t, 2, f.missing)
	f.granted(load.Grant{Worker: 0, Requested: at(11), At: at(30)})
	f.granted(load.Grant{Worker: 0, Requested: at(31), At: at(32)})
	require.False(t, f.done())
	f.granted(load.Grant{Worker: 1, Requested: at(12), At: at(50)})
	require.True(t, f.done())
	<-f.complete
	require.Equal(t, []time.Duration{20, 40}, []time.Duration{f.first, f.last})
}

func TestTable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	sample := func(target string, rate, steal float64) results.Sample {
		return results.Sample{Work: "W1", Target: target, Params: params{"workers": 1},
			Figures: map[string]float64{results.Rate: rate}, Steal: steal}
	}
	require.NoError(t, Table(&out, []results.Sample{sample("a", 1, 0), sample("b", 10, 0), sample("a", 2, 0.12),
		sample("a", 9, 0), {Work: "W1", Target: "c", Params: params{"workers": 1}}}))
	require.Equal(t, `
  W1 workers=1  pairs/s  range of rate  steal
             a     2.00           1..9   12 %
             b     10.0         10..10    0 %
             c        -              -    0 %
`, out.String())
	require.NoError(t, Table(&out, nil))
}

// memoryKind is a service in the memory of this process.
func memoryKind(name string, starts *[]string) peers.Kind {
	return peers.Kind{
		Name: name,
		Open: func([]string) load.Target { return new(memory).Open },
		Start: func(context.Context, string) (*peers.Cluster, error) {
			*starts = append(*starts, name)
			return &peers.Cluster{Version: "1"}, nil
		},
	}
}

type memory struct{ lock sync.Mutex }

func (m *memory) Open(context.Context) (load.Client, error) { return m, nil }
func (m *memory) Close(context.Context) error               { return nil }

func (m *memory) Acquire(context.Context, string) (load.Held, error) {
	m.lock.Lock()
	return load.Held{Token: 1, Release: func(context.Context) error { m.lock.Unlock(); return nil }}, nil
}

func TestRun(t *testing.T) {
	t.Parallel()
	var starts, order []string
	cases := 0
	versions, err := Run(t.Context(), Settings{
		Kinds: []peers.Kind{memoryKind("a", &starts), memoryKind("b", &starts)}, Only: []string{"W1/1", "W1/16"}, Rounds: 2,
		Length: time.Millisecond, MaxSteal: 1,
		Measured: func(s results.Sample) {
			require.Empty(t, s.Note)
			order = append(order, s.Target)
		},
		Finished: func(samples []results.Sample) {
			require.Len(t, samples, 4)
			cases++
		},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "b": "1"}, versions)
	require.Equal(t, "abababab", strings.Join(order, ""), "targets alternate within a round")
	require.Equal(t, []string{"a", "b"}, starts, "the servers of a workload keep running")
	require.Equal(t, 2, cases)
}

// A round in which the machine was busy with something else is measured again at the end, and the table shows only the
// last measurement.
func TestDisturbedRoundsAreRepeated(t *testing.T) {
	t.Parallel()
	var starts, order []string
	_, err := Run(t.Context(), Settings{
		Kinds: []peers.Kind{memoryKind("a", &starts)}, Only: []string{"W1/1", "W1/16"}, Rounds: 2,
		Length: time.Millisecond, MaxSteal: -1,
		Measured: func(s results.Sample) { order = append(order, fmt.Sprint(s.Params["workers"], "/", s.Round)) },
		Finished: func(samples []results.Sample) { require.Len(t, samples, 2) },
	})
	require.NoError(t, err)
	require.Equal(t, "1/1 1/2 16/1 16/2"+strings.Repeat(" 1/1 1/2 16/1 16/2", repeats), strings.Join(order, " "))
}

func TestRunWithoutServers(t *testing.T) {
	t.Parallel()
	var starts, notes []string
	broken := peers.Kind{Name: "broken", Start: func(context.Context, string) (*peers.Cluster, error) {
		starts = append(starts, "broken")
		return nil, errors.New("not installed\nmore")
	}}
	samples := 0
	_, err := Run(t.Context(), Settings{
		Kinds: []peers.Kind{broken, memoryKind("a", &starts)}, Only: []string{"W1/1"}, Rounds: 3, Length: time.Millisecond,
		MaxSteal: 1,
		Measured: func(s results.Sample) {
			samples++
			if s.Note != "" {
				notes = append(notes, s.Note)
			}
		},
		Finished: func([]results.Sample) {},
	})
	require.ErrorContains(t, err, "W1 workers=1 with broken, round 1: not installed")
	require.Equal(t, []string{"broken", "a"}, starts, "servers that do not start are tried once")
	require.Equal(t, []string{"not installed"}, notes)
	require.Equal(t, 4, samples, "the other target is measured in each round")
}

func TestChild(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(childSettings{Kind: "a", Length: 10 * time.Millisecond,
		Work: load.Work{Kind: load.Contended, Workers: 3, Clients: 1}})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, Child(t.Context(), []peers.Kind{memoryKind("a", new([]string))}, string(text),
		strings.NewReader("\n"), &out))
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	var p part
	require.NoError(t, json.NewDecoder(io.Reader(&out)).Decode(&p))
	require.Len(t, p.Holds, 3)
	require.Less(t, p.Begin, p.End)
}

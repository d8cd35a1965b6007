package virtual

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// counting is a schedule of faults and the expected count.
type counting struct {
	name   string
	want   int
	faults []fault
}

// counts injects the faults of each case and compares the count.
func counts(t *testing.T, s *history, cases []counting, begin func(fault)) {
	t.Helper()
	for _, c := range cases {
		before := s.checker.Report(false).Injected()
		schedule(c.faults, begin)
		require.Equal(t, c.want, s.checker.Report(false).Injected()-before, c.name)
		wait(context.Background(), 20*time.Second) // until all faults are over
	}
	require.Empty(t, s.failure)
}

// beside is a fault that starts a second after the previous one and lasts ten.
func beside(kind string, target, random int) fault {
	return fault{kind: kind, target: target, after: time.Second, lasts: 10 * time.Second, random: random}
}

// over is a fault of zero length.
func over(kind string, random int) fault { return fault{kind: kind, random: random} }

func TestClusterFaultsWithoutEffectAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHistory("faults of a cluster")
		c, err := startCluster(s, 3, 1)
		defer c.close()
		require.NoError(t, err)
		wait(t.Context(), 10*time.Second)
		counts(t, s, []counting{
			{"separate faults", 4, []fault{beside("isolate", 0, 1), {kind: "slow-network", target: 1, after: 15 * time.Second,
				lasts: time.Second, random: 20},
				{kind: "slow-disk", target: 2, after: 15 * time.Second, lasts: time.Second, random: 5},
				{kind: "crash", target: 1, after: 15 * time.Second, lasts: time.Second}}},
			{"no length", 0, []fault{over("isolate", 1), over("no-outbound", 1), over("split", 1), over("slow-network", 20),
				over("slow-disk", 5)}},
			{"no size", 0, []fault{beside("slow-network", 0, 0), beside("slow-disk", 1, 0)}},
			{"split with an empty side", 0, []fault{beside("split", 0, 0), beside("split", 0, 8)}},
			{"cut already", 1, []fault{beside("isolate", 0, 1), beside("no-outbound", 0, 1), beside("no-inbound", 0, 1),
				beside("split", 0, 1), beside("isolate", 0, 1)}},
			{"cut, so no slower", 1, []fault{beside("isolate", 0, 1), beside("slow-network", 0, 20)}},
			{"cut in one direction, then in both", 2, []fault{beside("no-outbound", 0, 1), beside("isolate", 0, 1)}},
			{"down", 1, []fault{beside("crash", 0, 1), beside("isolate", 0, 1), beside("slow-network", 0, 20),
				beside("crash", 0, 1)}},
			{"slow already", 1, []fault{beside("slow-network", 0, 20), beside("slow-network", 0, 20)}},
			{"transfer from a leader", 1, []fault{beside("transfer", 0, 0)}},
			{"transfer without a leader", 1, []fault{beside("crash-all", 0, 0), beside("transfer", 0, 0)}},
		}, func(f fault) { c.inject(context.Background(), f) })
		wait(context.Background(), time.Minute)
	})
}

func TestServerFaultsWithoutEffectAreNotCounted(t *testing.T) {
	forgetTimers()
	synctest.Test(t, func(t *testing.T) {
		s := newHistory("faults of servers")
		f, err := startFleet(s, 3, 1)
		defer wait(context.Background(), time.Minute)
		defer f.close()
		require.NoError(t, err)
		counts(t, s, []counting{
			{"separate faults", 4, []fault{{kind: "cut", lasts: time.Second}, {kind: "late", after: 5 * time.Second,
				lasts: time.Second, random: 3},
				{kind: "lost-replies", after: 5 * time.Second, lasts: time.Second},
				{kind: "redis-clock-rate", after: 5 * time.Second, lasts: time.Second}}},
			{"no length", 0, []fault{over("cut", 1), over("late", 9), over("lost-replies", 1), over("redis-clock-rate", 1)}},
			{"no size", 0, []fault{beside("late", 0, 0), beside("redis-clock-jump", 1, 50)}},
			{"cut already", 1, []fault{beside("cut", 0, 1), beside("cut", 0, 1), beside("late", 0, 9),
				beside("lost-replies", 0, 1)}},
			{"late already", 1, []fault{beside("late", 0, 9), beside("late", 0, 9)}},
			{"lost already", 1, []fault{beside("lost-replies", 0, 9), beside("lost-replies", 0, 9)}},
			{"unsound already", 1, []fault{beside("redis-clock-rate", 0, 9), beside("redis-clock-rate", 0, 12)}},
			{"down", 1, []fault{beside("stop", 0, 1), beside("cut", 0, 1), beside("late", 0, 9), beside("lost-replies", 0, 1),
				beside("redis-clock-jump", 0, 1),
				beside("redis-clock-day", 0, 1), beside("redis-clock-rate", 0, 1), beside("stop", 0, 1)}},
		}, func(one fault) { f.inject(context.Background(), one) })
	})
}

func TestClientFaultsWithoutEffectAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHistory("faults of clients")
		p := &process{history: s, name: "client", clock: newClock(1.02)}
		counts(t, s, []counting{
			{"separate faults", 3, []fault{{kind: "clock-rate", lasts: time.Second}, {kind: "clock-stop", after: 5 * time.Second,
				lasts: time.Second}, over("clock-jump", 1)}},
			{"pauses", 2, []fault{{kind: "pause", lasts: time.Second}, {kind: "suspend", after: 5 * time.Second,
				lasts: time.Second}}},
			{"no length", 0, []fault{over("pause", 1), over("suspend", 1), over("clock-rate", 1), over("clock-stop", 1)}},
			{"no size", 0, []fault{beside("clock-jump", 0, 50)}},
			{"paused already", 1, []fault{beside("pause", 0, 1), beside("pause", 0, 1), beside("suspend", 0, 1)}},
			{"stopped already", 1, []fault{beside("clock-stop", 0, 1), beside("clock-stop", 0, 1), beside("clock-rate", 0, 1)}},
			{"unsound already", 1, []fault{beside("clock-rate", 0, 1), beside("clock-rate", 0, 40)}},
		}, func(f fault) { injectClient(p, f) })
	})
}

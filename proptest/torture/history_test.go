//go:build linux

package torture

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// historyBuilder builds a history with one event per millisecond.
type historyBuilder struct {
	h   *history
	now time.Duration
}

func (t *historyBuilder) event(kind property.Kind, who string, token fencing.Token, op, seen, version uint64,
	access property.Access) {
	t.now += time.Millisecond
	t.h.events = append(t.h.events, property.Event{At: t.now, Kind: kind, Who: who, Resource: "c/1/0",
		Attempt: property.Attempt(who), Token: token, Op: op, Seen: seen, Version: version, Access: access})
}

func (t *historyBuilder) row(kind property.Kind, token fencing.Token, op, seen, version uint64) {
	t.h.rows = append(t.h.rows, property.Event{At: t.now, Kind: kind, Who: storageName, Resource: "c/1/0", Token: token,
		Op: op, Seen: seen, Version: version})
}

// holds adds a grant, an Enter and a read.
func (t *historyBuilder) holds(who string, token fencing.Token, op, version uint64) {
	t.event(property.Requested, who, 0, 0, 0, 0, property.Write)
	t.event(property.Acquired, who, token, 0, 0, 0, property.Write)
	t.event(property.Sent, who, token, op, 0, 0, property.Enter)
	t.row(property.Entered, token, 0, 0, 0)
	t.event(property.Acknowledged, who, token, op, 0, 0, property.Enter)
	t.event(property.Sent, who, token, op+1, 0, 0, property.Read)
	t.event(property.Acknowledged, who, token, op+1, 0, version, property.Read)
}

// writes adds an applied write.
func (t *historyBuilder) writes(who string, token fencing.Token, op, version uint64) {
	t.event(property.Sent, who, token, op, version-1, version, property.Write)
	t.row(property.Wrote, token, op, version-1, version)
	t.event(property.Acknowledged, who, token, op, version-1, version, property.Write)
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		build    func(*historyBuilder)
		violates []string
	}{
		"a late write that was refused": {func(s *historyBuilder) {
			s.holds("a", 1, 10, 0)
			s.holds("b", 2, 20, 0)
			s.writes("b", 2, 22, 1)
			s.event(property.Sent, "a", 1, 12, 0, 1, property.Write)
			s.event(property.Rejected, "a", 1, 12, 0, 1, property.Write)
		}, nil},
		"a late write of a killed worker": {func(s *historyBuilder) {
			s.holds("a", 1, 10, 0)
			s.event(property.Sent, "a", 1, 12, 0, 1, property.Write)
			s.row(property.Wrote, 1, 12, 0, 1)
			s.holds("b", 2, 20, 1)
			s.writes("b", 2, 22, 2)
		}, nil},
		"a stale write that was applied": {func(s *historyBuilder) {
			s.holds("a", 1, 10, 0)
			s.holds("b", 2, 20, 0)
			s.writes("b", 2, 22, 1)
			s.writes("a", 1, 12, 1)
		}, []string{"G1", "acknowledged", "linearizable"}}, // the property checker treats it as not applied
		"an answer without a write": {func(s *historyBuilder) {
			s.holds("a", 1, 10, 0)
			s.event(property.Sent, "a", 1, 12, 0, 1, property.Write)
			s.event(property.Acknowledged, "a", 1, 12, 0, 1, property.Write)
		}, []string{"acknowledged"}},
		"one token for two attempts": {func(s *historyBuilder) {
			s.holds("a", 1, 10, 0)
			s.holds("b", 1, 20, 0)
		}, []string{"T1"}},
		"a smaller token": {func(s *historyBuilder) {
			s.holds("a", 2, 10, 0)
			s.event(property.Requested, "b", 0, 0, 0, 0, property.Write)
			s.event(property.Acquired, "b", 1, 0, 0, 0, property.Write)
		}, []string{"T2"}},
		"a stale read": {func(s *historyBuilder) {
			s.holds("a", 1, 10, 0)
			s.writes("a", 1, 12, 1)
			s.holds("b", 2, 20, 0)
		}, []string{"linearizable"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &historyBuilder{h: newHistory("c/1")}
			c.build(s)
			v := s.h.check()
			require.Len(t, v.report.Violations, len(c.violates), "%v", v.report.Violations)
			for i, part := range c.violates {
				require.Contains(t, v.report.Violations[i], part)
			}
		})
	}
}

func TestNames(t *testing.T) {
	require.Equal(t, "c/17", historyOf(resourceName(correctness, "17", 2)))
	require.Equal(t, 17, newHistory("c/17").generation)
	require.Equal(t, -1, newHistory(historyOf(resourceName(efficiency, always, 0))).generation)
	require.NoError(t, resourceName(efficiency, always, 0).Validate())
}

// A killed worker cannot report the end of its leases.
func TestKilledWorkersHoldNothing(t *testing.T) {
	c := newChecker(&world{})
	c.take(property.Event{At: 1, Kind: property.Requested, Who: "a", Resource: "e/1/0", Attempt: "a1"})
	c.take(property.Event{At: 2, Kind: property.Acquired, Who: "a", Resource: "e/1/0", Attempt: "a1", Token: 1})
	c.happened(property.Event{At: 3, Kind: property.Fault, Who: "a", Note: "worker killed"})
	c.take(property.Event{At: 4, Kind: property.Requested, Who: "b", Resource: "e/1/0", Attempt: "b1"})
	c.take(property.Event{At: 5, Kind: property.Acquired, Who: "b", Resource: "e/1/0", Attempt: "b1", Token: 2})
	require.Zero(t, c.open["e/1"].check().report.Overlaps)
	require.Equal(t, map[string]int{"worker killed": 1}, c.kinds)
}

func TestOverlapsWithoutAPause(t *testing.T) {
	acquired := func(at time.Duration, who string) property.Event {
		return property.Event{At: at * time.Second, Kind: property.Acquired, Who: who, Resource: "c/1/0",
			Attempt: property.Attempt(who)}
	}
	as := func(e property.Event, kind property.Kind) property.Event { e.Kind = kind; return e }
	for name, c := range map[string]struct {
		events []property.Event
		want   int
	}{
		"sequential":   {[]property.Event{acquired(1, "a"), as(acquired(2, "a"), property.Ended), acquired(3, "b")}, 0},
		"concurrent":   {[]property.Event{acquired(1, "a"), acquired(3, "b")}, 1},
		"while paused": {[]property.Event{acquired(1, "a"), as(acquired(2, "a"), property.Paused), acquired(3, "b")}, 0},
		"at resume": {[]property.Event{acquired(1, "a"), as(acquired(2, "a"), property.Paused),
			as(acquired(3, "a"), property.Resumed), acquired(3, "b")}, 0},
		"long after resume": {[]property.Event{acquired(1, "a"), as(acquired(2, "a"), property.Paused),
			as(acquired(3, "a"), property.Resumed), acquired(9, "b")}, 1},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, unpaused(c.events)) })
	}
}

func TestGrantsByRoute(t *testing.T) {
	g := &newChecker(&world{}).grants
	see := func(at time.Duration, who string) { g.see(property.Event{At: at * time.Second, Who: who}) }
	see(1, "worker 1")
	require.Equal(t, Routes{}, g.figures(), "not counted yet")
	require.True(t, g.since(0))
	require.False(t, g.since(time.Second))
	g.watch(2 * time.Second)
	see(5, "worker 1")
	see(6, "worker 2")
	see(7, "worker 3") // every third worker goes through a member
	want := Routes{Direct: Route{Grants: 2, Gap: 4 * time.Second}, Member: Route{Grants: 1, Gap: 5 * time.Second}}
	g.end(10 * time.Second)
	require.Equal(t, want, g.figures())
	see(20, "worker 1")
	require.Equal(t, want, g.figures())
}

package recovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// live returns the report of a voter of fleet "f".
func live(version uint64, top, floor, ceiling fencing.Token) Report {
	return Report{Reached: true, Server: "a", Live: &State{Join: "j", Version: version, Fleet: "f", Max: top, Floor: floor,
		Ceiling: ceiling}}
}

// former returns the report of an empty node with the state of a former life.
func former(version uint64, top, floor, ceiling fencing.Token) Report {
	return Report{Reached: true, Server: "b", FormerServer: "a", Former: live(version, top, floor, ceiling).Live}
}

var (
	silent = Report{}
	empty  = Report{Reached: true}
)

func TestNext(t *testing.T) {
	t.Parallel()
	goal := Goal{Version: 3, Fleet: "f", Lives: []string{"a.j"}, Floor: 10, Ceiling: 20}
	other, moved, retired, rolledBack := live(3, 10, 10, 20), live(3, 10, 10, 20), live(3, 10, 10, 20), live(3, 10, 10, 20)
	other.Live.Fleet = "g"
	moved.Server = "b"
	retired.Live.Successor = "h"
	rolledBack.Live.Join = "i"
	for name, c := range map[string]struct {
		report Report
		want   Step
	}{
		"no answer":             {silent, Nothing},
		"empty":                 {empty, Recover},
		"with a former life":    {former(3, 10, 10, 20), Recover},
		"in another fleet":      {other, Recover},
		"in another life":       {moved, Recover},
		"rolled back":           {rolledBack, Recover},
		"retired":               {retired, Advance},
		"at the goal":           {live(3, 10, 10, 20), Nothing},
		"ahead of it":           {live(4, 30, 15, 40), Nothing},
		"version behind":        {live(2, 10, 10, 20), Advance},
		"floor behind":          {live(3, 15, 9, 20), Advance},
		"only ceiling is lower": {live(3, 10, 10, 19), Advance},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, goal.Next(0, c.report)) })
	}
}

func TestMet(t *testing.T) {
	t.Parallel()
	goal := Goal{Version: 3, Fleet: "f", Lives: []string{"a.j", "a.j", "a.j"}, Floor: 10, Ceiling: 20}
	moved := live(3, 10, 10, 20)
	moved.Server = "b"
	there, other := live(3, 10, 10, 15), live(3, 10, 10, 20)
	other.Live.Fleet = "g"
	require.True(t, goal.Met([]Report{there, there, silent}))
	require.False(t, goal.Met([]Report{there, silent, empty}), "less than a quorum")
	require.False(t, goal.Met([]Report{there, live(2, 10, 10, 20), silent}), "one has an older version")
	require.False(t, goal.Met([]Report{there, live(3, 10, 9, 20), silent}), "one has a lower floor")
	require.False(t, goal.Met([]Report{there, former(3, 10, 10, 20), silent}), "a former life does not vote")
	require.False(t, goal.Met([]Report{there, other, silent}), "one votes in another fleet")
	require.False(t, goal.Met([]Report{there, moved, silent}), "one is a life that the goal does not name")
}

func TestRaiseCeiling(t *testing.T) {
	t.Parallel()
	goal := Goal{Version: 1, Fleet: "f", Ceiling: 10 * Jump}
	_, needed := goal.RaiseCeiling([]Report{live(1, 9*Jump, 0, 10*Jump), silent})
	require.False(t, needed)
	to, needed := goal.RaiseCeiling([]Report{silent, live(1, 10*Jump-Jump/2+1, 0, 10*Jump)})
	require.True(t, needed)
	require.Equal(t, 11*Jump, to)
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	retired, elsewhere := live(9, 1, 0, 50), live(9, 1, 0, 50)
	retired.Live.Successor = "h"
	elsewhere.Live.Fleet = "g"
	elsewhereNewer := live(12, 1, 0, 50)
	elsewhereNewer.Live.Fleet = "g"
	formerlyRetired := former(9, 1, 0, 50)
	formerlyRetired.Former.Successor = "h"
	for name, c := range map[string]struct {
		reports   []Report
		complete  bool
		version   uint64
		ceiling   fencing.Token
		enough    bool
		successor string
	}{
		"largest of a quorum":             {[]Report{live(3, 1, 0, 50), live(4, 2, 0, 40), silent}, false, 4, 50, true, ""},
		"former lives are evidence":       {[]Report{former(7, 1, 0, 50), live(4, 2, 0, 40), silent}, false, 7, 50, true, ""},
		"less than a quorum":              {[]Report{live(3, 1, 0, 50), silent, silent}, false, 3, 50, false, ""},
		"an emptied node reports nothing": {[]Report{live(3, 1, 0, 50), empty, empty}, false, 3, 50, false, ""},
		"a new log and empty nodes":       {[]Report{empty, empty, silent}, true, 0, 0, true, ""},
		"a new log and used nodes":        {[]Report{empty, live(9, 1, 0, 50), silent}, true, 9, 50, true, ""},
		"no answer is not a report":       {[]Report{silent, silent, empty}, true, 0, 0, false, ""},
		"without a ceiling": {[]Report{live(1, 7, 5, fencing.MaxToken), live(1, 3, 9, fencing.MaxToken)}, false,
			1, 9 + Jump, true, ""},
		"retired nodes": {[]Report{retired, retired, silent}, false, 9, 50, false, "h"},
		"one retired node": {[]Report{retired, live(3, 1, 0, 40), live(3, 1, 0, 40)}, false, 9, 50, false,
			"h"},
		"retired in a former life": {[]Report{formerlyRetired, live(3, 1, 0, 40), live(3, 1, 0, 40)}, false, 9, 50,
			false, "h"},
		"a change that was cancelled": {[]Report{retired, live(10, 1, 0, 40), silent}, false, 10, 50, true, ""},
		"a change of the same version": {[]Report{live(9, 1, 0, 40), retired, live(9, 1, 0, 40)}, false, 9, 50, false,
			"h"},
		"another fleet is newer":          {[]Report{retired, elsewhereNewer, live(3, 1, 0, 40)}, false, 12, 50, false, "h"},
		"retired, and the log knows it":   {[]Report{retired, retired, silent}, true, 9, 50, true, ""},
		"nodes of another fleet":          {[]Report{elsewhere, elsewhere, live(3, 1, 0, 40)}, false, 9, 50, false, ""},
		"a new log, nodes of another one": {[]Report{elsewhere, elsewhere, silent}, true, 9, 50, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := Reconcile("f", c.reports, c.complete)
			require.Equal(t, c.enough, e.Enough)
			require.Equal(t, c.version, e.Version)
			require.Equal(t, c.ceiling, e.Ceiling)
			require.Equal(t, c.successor, e.Successor)
		})
	}
	e := Reconcile("f", []Report{live(3, 1, 0, 50), elsewhere, former(3, 1, 0, 50)}, true)
	require.Equal(t, []string{"a.j", "", ""}, e.Lives, "the lives that vote in this fleet")
	require.Equal(t, []string{"a.j", Unknown, ""}, e.Past, "one life has ended, one is unknown")
	e = Reconcile("f", []Report{silent, empty, live(3, 1, 0, 50)}, false)
	require.Equal(t, []string{Unknown, Unknown, "a.j"}, e.Past, "nobody knows what the other nodes did")
}

func TestClosing(t *testing.T) {
	t.Parallel()
	in := func(life string, version uint64) Report {
		return Report{Reached: true, Server: life, Live: &State{Version: version, Fleet: "f", Join: "j"}}
	}
	joining := func(life, former string) Report { return Report{Reached: true, Server: life, FormerServer: former} }
	again := in("a", 4)
	again.Live.Join = "i"
	set := Set{Version: 3, Lives: []string{"a.j", "b.j", "c.j"}}
	for name, c := range map[string]struct {
		set     Set
		reports []Report
		want    Closing
	}{
		"a quorum has a newer version":           {set, []Report{joining("d", ""), in("b", 4), in("c", 4)}, Closed},
		"one has a newer version":                {set, []Report{joining("d", ""), in("b", 4), in("c", 3)}, Open},
		"one can be asked":                       {set, []Report{joining("d", ""), in("b", 4), silent}, Unreachable},
		"one has ended, one can be asked":        {set, []Report{joining("d", "a"), in("b", 3), silent}, Open},
		"its successor proves the end of a life": {set, []Report{joining("d", "a"), in("b", 4), silent}, Closed},
		"the same life on its own data":          {set, []Report{joining("a", "a"), in("b", 4), in("c", 3)}, Open},
		"a new life is not one of the set":       {set, []Report{in("d", 4), in("b", 4), silent}, Unreachable},
		"a life that does not vote yet":          {set, []Report{joining("a", ""), in("b", 4), in("c", 3)}, Open},
		"a server that votes in another life":    {set, []Report{again, in("b", 4), in("c", 3)}, Open},
		"unknown lives": {Set{3, []string{Unknown, Unknown, "c.j"}},
			[]Report{in("a", 4), joining("b", "a"), in("c", 4)}, Unreachable},
		"nodes without a life": {Set{3, []string{"a.j", "", ""}}, []Report{silent, silent, silent},
			Closed},
		"one without a life, one newer version": {Set{3, []string{"a.j", "b.j", ""}}, []Report{in("a", 4), silent, silent},
			Closed},
		"the version of the set is not newer": {set, []Report{in("a", 3), in("b", 3), in("c", 3)}, Open},
		"all addresses lead to other lives": {set, []Report{joining("d", ""), joining("e", ""), joining("g", "")},
			Unreachable},
		"all servers restarted on their own data": {set, []Report{joining("d", "a"), joining("e", "b"), silent}, Closed},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.set.Closing(c.reports)) })
	}
}

// A quorum of the lives of a set, which refuse its version, know every token that it has granted.
func TestSetGranted(t *testing.T) {
	t.Parallel()
	set := Set{3, []string{"a.j", "b.j", "c.j"}}
	in := func(server string, version uint64, top fencing.Token) Report {
		return Report{Reached: true, Server: server, Live: &State{Version: version, Fleet: "f", Join: "j", Max: top}}
	}
	ended := Report{Reached: true, Server: "d", FormerServer: "a", Former: &State{Version: 3, Fleet: "f", Max: 99}}
	for name, c := range map[string]struct {
		reports []Report
		want    fencing.Token
	}{
		"all":                                   {[]Report{in("a", 4, 7), in("b", 4, 9), in("c", 5, 8)}, 9},
		"a quorum":                              {[]Report{ended, in("b", 4, 7), in("c", 4, 8)}, 8},
		"nothing was granted":                   {[]Report{in("a", 4, 0), in("b", 4, 0), silent}, 1},
		"a life that has ended does not report": {[]Report{ended, in("b", 4, 7), silent}, fencing.None},
		"one that may still vote does not":      {[]Report{in("a", 3, 9), in("b", 4, 7), silent}, fencing.None},
		"a new life does not":                   {[]Report{in("d", 4, 9), in("b", 4, 7), silent}, fencing.None},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, set.Granted(c.reports)) })
	}
	goal := Goal{Version: 4, Fleet: "f", Lives: set.Lives}
	require.Equal(t, fencing.Token(8), goal.Granted([]Report{in("a", 3, 9), in("b", 4, 7), in("c", 4, 8)}))
	require.Equal(t, fencing.None, goal.Granted([]Report{in("a", 3, 9), in("b", 4, 7), in("c", 3, 8)}))
}

func TestStandaloneFloor(t *testing.T) {
	t.Parallel()
	floor, ok := StandaloneFloor([]Report{live(1, 7, 5, fencing.MaxToken), former(1, 3, 9, fencing.MaxToken), silent})
	require.True(t, ok)
	require.Equal(t, 9+Jump, floor)
	floor, _ = StandaloneFloor([]Report{live(1, 7, 5, fencing.MaxToken), former(1, 3, 9, fencing.MaxToken),
		live(1, 8, 5, fencing.MaxToken)})
	require.Equal(t, 9+VoteJump, floor, "a quorum votes")
	_, ok = StandaloneFloor([]Report{live(1, 7, 5, fencing.MaxToken), empty, empty})
	require.False(t, ok, "an emptied node reports nothing")
	floor, ok = StandaloneFloor([]Report{former(1, 3, 0, fencing.MaxToken)})
	require.True(t, ok, "a single node is a quorum")
	require.Equal(t, 3+Jump, floor)
}

func TestQuarantineLeft(t *testing.T) {
	const quarantine, gap = time.Minute, 5 * time.Second
	require.Equal(t, quarantine, QuarantineLeft(quarantine, 0, 0, gap))
	require.Equal(t, 10*time.Second, QuarantineLeft(quarantine, 50*time.Second, gap-1, gap))
	require.Zero(t, QuarantineLeft(quarantine, time.Hour, 0, gap))
	require.Equal(t, quarantine, QuarantineLeft(quarantine, time.Hour, gap, gap),
		"nobody looked at the server for too long")
}

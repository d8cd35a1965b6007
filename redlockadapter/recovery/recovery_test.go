package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// live returns the report of a voter of fleet "f".
func live(version uint64, top, floor, ceiling fencing.Token) Report {
	return Report{Reached: true, Live: &State{Version: version, Fleet: "f", Max: top, Floor: floor, Ceiling: ceiling}}
}

// former returns the report of an empty node with the state of a former life.
func former(version uint64, top, floor, ceiling fencing.Token) Report {
	return Report{Reached: true, Former: live(version, top, floor, ceiling).Live}
}

var (
	silent = Report{}
	empty  = Report{Reached: true}
)

func TestNext(t *testing.T) {
	t.Parallel()
	goal := Goal{Version: 3, Fleet: "f", Floor: 10, Ceiling: 20}
	other := live(3, 10, 10, 20)
	other.Live.Fleet = "g"
	for name, c := range map[string]struct {
		report Report
		want   Step
	}{
		"no answer":             {silent, Nothing},
		"empty":                 {empty, Recover},
		"with a former life":    {former(3, 10, 10, 20), Recover},
		"in another fleet":      {other, Recover},
		"at the goal":           {live(3, 10, 10, 20), Nothing},
		"ahead of it":           {live(4, 30, 15, 40), Nothing},
		"version behind":        {live(2, 10, 10, 20), Advance},
		"floor behind":          {live(3, 15, 9, 20), Advance},
		"only ceiling is lower": {live(3, 10, 10, 19), Advance},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, goal.Next(c.report)) })
	}
}

func TestMet(t *testing.T) {
	t.Parallel()
	goal := Goal{Version: 3, Fleet: "f", Floor: 10, Ceiling: 20}
	there, other := live(3, 10, 10, 15), live(3, 10, 10, 20)
	other.Live.Fleet = "g"
	require.True(t, goal.Met([]Report{there, there, silent}))
	require.False(t, goal.Met([]Report{there, silent, empty}), "less than a quorum")
	require.False(t, goal.Met([]Report{there, live(2, 10, 10, 20), silent}), "one has an older version")
	require.False(t, goal.Met([]Report{there, live(3, 10, 9, 20), silent}), "one has a lower floor")
	require.False(t, goal.Met([]Report{there, former(3, 10, 10, 20), silent}), "a former life does not vote")
	require.False(t, goal.Met([]Report{there, other, silent}), "one votes in another fleet")
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
	for name, c := range map[string]struct {
		reports  []Report
		complete bool
		version  uint64
		ceiling  fencing.Token
		ok       bool
	}{
		"largest of a quorum":             {[]Report{live(3, 1, 0, 50), live(4, 2, 0, 40), silent}, false, 4, 50, true},
		"former lives are evidence":       {[]Report{former(7, 1, 0, 50), live(4, 2, 0, 40), silent}, false, 7, 50, true},
		"less than a quorum":              {[]Report{live(3, 1, 0, 50), silent, silent}, false, 3, 50, false},
		"an emptied node reports nothing": {[]Report{live(3, 1, 0, 50), empty, empty}, false, 3, 50, false},
		"a new log and empty nodes":       {[]Report{empty, empty, silent}, true, 0, 0, true},
		"a new log and used nodes":        {[]Report{empty, live(9, 1, 0, 50), silent}, true, 9, 50, true},
		"no answer is not a report":       {[]Report{silent, silent, empty}, true, 0, 0, false},
		"without a ceiling":               {[]Report{live(1, 7, 5, fencing.MaxToken), live(1, 3, 9, fencing.MaxToken)}, false, 1, 9 + Jump, true},
	} {
		t.Run(name, func(t *testing.T) {
			version, ceiling, ok := Reconcile(c.reports, c.complete)
			require.Equal(t, c.ok, ok)
			require.Equal(t, c.version, version)
			require.Equal(t, c.ceiling, ceiling)
		})
	}
}

func TestStandaloneFloor(t *testing.T) {
	t.Parallel()
	floor, ok := StandaloneFloor([]Report{live(1, 7, 5, fencing.MaxToken), former(1, 3, 9, fencing.MaxToken), silent})
	require.True(t, ok)
	require.Equal(t, 9+Jump, floor)
	_, ok = StandaloneFloor([]Report{live(1, 7, 5, fencing.MaxToken), empty, empty})
	require.False(t, ok, "an emptied node reports nothing")
	floor, ok = StandaloneFloor([]Report{former(1, 3, 0, fencing.MaxToken)})
	require.True(t, ok, "a single node is a quorum")
	require.Equal(t, 3+Jump, floor)
}

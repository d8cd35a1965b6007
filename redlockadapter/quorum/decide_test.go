package quorum

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

func yes(token fencing.Token) Vote { return Vote{State: Accepted, Token: token} }

func TestDecide(t *testing.T) {
	wait, held, failed := Vote{}, Vote{State: Held, Holder: "x"}, Vote{State: Failed}
	for name, c := range map[string]struct {
		votes    []Vote
		proposed fencing.Token
		want     Decision
	}{
		"nothing heard":              {[]Vote{wait, wait, wait}, 0, Decision{}},
		"one of three":               {[]Vote{yes(5), wait, wait}, 0, Decision{}},
		"two agree, the third can":   {[]Vote{yes(5), yes(5), wait}, 0, Decision{Granted, 5}},
		"one node is a majority":     {[]Vote{yes(1)}, 0, Decision{Granted, 1}},
		"they differ, one may help":  {[]Vote{yes(5), yes(6), wait}, 0, Decision{}},
		"they differ, nobody helps":  {[]Vote{yes(5), yes(6), held}, 0, Decision{Raise, 6}},
		"a raise is under way":       {[]Vote{{State: Accepted, Token: 5, Raising: true}, yes(6), held}, 6, Decision{}},
		"raised":                     {[]Vote{yes(6), yes(6), held}, 6, Decision{Granted, 6}},
		"a raise was not followed":   {[]Vote{yes(5), yes(6), held}, 6, Decision{Outcome: Lost}},
		"less than was proposed":     {[]Vote{{State: Accepted, Token: 5, Raising: true}, yes(5), yes(6)}, 6, Decision{}},
		"impossible, one not heard":  {[]Vote{held, held, wait}, 0, Decision{Outcome: Lost}},
		"impossible, failed":         {[]Vote{yes(5), failed, held}, 0, Decision{Outcome: Lost}},
		"five, three agree of four":  {[]Vote{yes(5), yes(4), yes(5), yes(5), wait}, 0, Decision{Granted, 5}},
		"a smaller majority is good": {[]Vote{yes(5), yes(9), yes(5), yes(5), wait}, 0, Decision{Granted, 5}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, Decide(c.votes, c.proposed)) })
	}
}

func TestHeldByOther(t *testing.T) {
	by := func(name string) Vote { return Vote{State: Held, Holder: name} }
	require.True(t, HeldByOther([]Vote{by("a"), by("a"), yes(1)}))
	require.False(t, HeldByOther([]Vote{by("a"), by("b"), yes(1)}), "split")
	require.False(t, HeldByOther([]Vote{by("a"), {}, {State: Failed}}), "not seen to be")
}

func TestFreeAfter(t *testing.T) {
	left := func(d time.Duration) Vote { return Vote{State: Held, Left: d} }
	require.Equal(t, 2*time.Second, FreeAfter([]Vote{left(time.Second), left(3 * time.Second), left(2 * time.Second)}))
	require.Zero(t, FreeAfter([]Vote{yes(1), yes(1), left(time.Second)}))
}

func TestBelieve(t *testing.T) {
	sure, doubted, empty, silent := Report{Known: true, Data: true}, Report{Known: true, Doubted: true}, Report{Known: true}, Report{}
	back := Report{Known: true, Data: true, Believed: true}
	for name, c := range map[string]struct {
		reports  []Report
		believed bool
	}{
		"a majority knows better":                {[]Report{sure, doubted, sure}, false},
		"a majority may know better":             {[]Report{sure, doubted, silent}, false},
		"or two of them":                         {[]Report{silent, doubted, silent}, false},
		"there is no such majority":              {[]Report{sure, doubted, doubted}, true},
		"nor with one that has lost everything":  {[]Report{sure, doubted, empty}, true},
		"all were restarted":                     {[]Report{doubted, doubted, doubted}, true},
		"the only one":                           {[]Report{doubted}, true},
		"one came back by its word, one is dead": {[]Report{back, doubted, silent}, true},
		"a majority came back by its word":       {[]Report{back, doubted, back}, false},
	} {
		t.Run(name, func(t *testing.T) {
			read, believed := Believe(c.reports)
			require.Equal(t, c.believed, believed)
			for i, r := range read {
				require.Equal(t, c.reports[i].Data || believed && c.reports[i].Doubted, r.Data, "node %d", i)
			}
			require.False(t, empty.Data || doubted.Data, "what was reported stays")
		})
	}
}

func TestFloorKeepsWhatWasSeen(t *testing.T) {
	seen := []Report{{Known: true, Doubted: true, Max: 130}, {Known: true, Data: true, Max: 65}, {}}
	prepared := []Report{{}, {Known: true, Data: true, Epoch: 5, Max: 65}, {Known: true, Data: true, Epoch: 5, Max: 1}}
	floor, ok := Floor(seen, prepared, 5)
	require.True(t, ok)
	require.EqualValues(t, 130, floor)
}

func TestEpochOf(t *testing.T) {
	report := func(epoch uint64) Report { return Report{Known: true, Data: true, Epoch: epoch} }
	usable, largest := EpochOf([]Report{report(3), report(2), report(2), report(2), {}})
	require.Equal(t, [2]uint64{2, 3}, [2]uint64{usable, largest})
	usable, _ = EpochOf([]Report{report(3), {Known: true, Epoch: 3}, report(2)})
	require.EqualValues(t, 2, usable, "an empty node is no witness")
	_, ok := PlanRejoin([]Report{report(1), {Known: true}, {}})
	require.False(t, ok, "one of three has data")
	epoch, ok := PlanRejoin([]Report{report(1), {Known: true, Epoch: 7}, report(4)})
	require.True(t, ok)
	require.EqualValues(t, 8, epoch)
	_, ok = Floor(nil, []Report{{Known: true, Data: true, Epoch: 5, Max: 9}, {}, {}}, 5)
	require.False(t, ok)
}

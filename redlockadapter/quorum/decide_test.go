package quorum

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

func yes(token fencing.Token) Vote { return Vote{State: Accepted, Token: token} }

func TestDecide(t *testing.T) {
	t.Parallel()
	wait, held, failed := Vote{}, Vote{State: Held, Holder: "x"}, Vote{State: Failed}
	for name, c := range map[string]struct {
		votes    []Vote
		proposed fencing.Token
		want     Decision
	}{
		"no answers":                  {[]Vote{wait, wait, wait}, 0, Decision{}},
		"one of three":                {[]Vote{yes(5), wait, wait}, 0, Decision{}},
		"two agree, one is pending":   {[]Vote{yes(5), yes(5), wait}, 0, Decision{Granted, 5}},
		"one node is a quorum":        {[]Vote{yes(1)}, 0, Decision{Granted, 1}},
		"they differ, one is pending": {[]Vote{yes(5), yes(6), wait}, 0, Decision{}},
		"they differ, none pending":   {[]Vote{yes(5), yes(6), held}, 0, Decision{Differ, 6}},
		"a raise is in flight":        {[]Vote{{State: Accepted, Token: 5, Raising: true}, yes(6), held}, 6, Decision{}},
		"raised":                      {[]Vote{yes(6), yes(6), held}, 6, Decision{Granted, 6}},
		"a raise was refused":         {[]Vote{yes(5), yes(6), held}, 6, Decision{Outcome: Lost}},
		"below the proposed token":    {[]Vote{{State: Accepted, Token: 5, Raising: true}, yes(5), yes(6)}, 6, Decision{}},
		"two held, one pending":       {[]Vote{held, held, wait}, 0, Decision{Outcome: Lost}},
		"one failed, one held":        {[]Vote{yes(5), failed, held}, 0, Decision{Outcome: Lost}},
		"three of five agree":         {[]Vote{yes(5), yes(4), yes(5), yes(5), wait}, 0, Decision{Granted, 5}},
		"a quorum below the largest":  {[]Vote{yes(5), yes(9), yes(5), yes(5), wait}, 0, Decision{Granted, 5}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, Decide(c.votes, c.proposed)) })
	}
}

func TestHeldByOther(t *testing.T) {
	t.Parallel()
	by := func(name string) Vote { return Vote{State: Held, Holder: name} }
	require.True(t, HeldByOther([]Vote{by("a"), by("a"), yes(1)}))
	require.False(t, HeldByOther([]Vote{by("a"), by("b"), yes(1)}), "split")
	require.False(t, HeldByOther([]Vote{by("a"), {}, {State: Failed}}), "on one node only")
}

func TestUsable(t *testing.T) {
	t.Parallel()
	bad := errors.New("it is a replica")
	require.True(t, Usable([]error{bad, nil, nil}))
	require.False(t, Usable([]error{bad, nil, bad}))
	require.True(t, Usable([]error{nil}))
}

func TestFreeAfter(t *testing.T) {
	t.Parallel()
	left := func(d time.Duration) Vote { return Vote{State: Held, Left: d} }
	require.Equal(t, 2*time.Second, FreeAfter([]Vote{left(time.Second), left(3 * time.Second), left(2 * time.Second)}))
	require.Zero(t, FreeAfter([]Vote{yes(1), yes(1), left(time.Second)}))
}

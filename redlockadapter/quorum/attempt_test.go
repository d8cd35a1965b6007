package quorum

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// asked returns an attempt that has asked all nodes.
func asked(n int) *Attempt {
	a := NewAttempt(n)
	a.AskRest()
	return a
}

// raises returns requests to raise nodes.
func raises(to fencing.Token, nodes Nodes) Requests { return Requests{Raise: nodes, RaiseTo: to} }

func TestAttemptIsGrantedInOneRoundIfNodesAgree(t *testing.T) {
	t.Parallel()
	a := asked(3)
	require.Zero(t, a.Answer(0, yes(5), false))
	require.Equal(t, Wait, a.Outcome)
	require.Zero(t, a.Answer(2, yes(5), false))
	require.Equal(t, Granted, a.Outcome)
	require.Equal(t, fencing.Token(5), a.Token)
}

func TestAttemptRaisesToTheLargestToken(t *testing.T) {
	t.Parallel()
	a := asked(3)
	require.Zero(t, a.Answer(0, yes(5), false))
	require.Zero(t, a.Answer(1, Vote{State: Failed}, true))
	require.Equal(t, raises(7, 0b001), a.Answer(2, yes(7), false))
	require.Equal(t, fencing.Token(7), a.Proposed)
	require.Equal(t, Wait, a.Outcome, "one node has accepted 7")
	require.Zero(t, a.Raised(0, 7, yes(7), false))
	require.Equal(t, Granted, a.Outcome)
	require.Equal(t, fencing.Token(7), a.Token)
}

func TestAttemptIsLostIfARaiseIsRefused(t *testing.T) {
	t.Parallel()
	a := asked(3)
	a.Answer(0, yes(5), false)
	a.Answer(1, Vote{State: Held}, false)
	a.Answer(2, yes(7), false)
	require.Zero(t, a.Raised(0, 7, Vote{State: Refused}, false))
	require.Equal(t, Lost, a.Outcome)
	require.Equal(t, fencing.None, a.Token)
	release, late := a.End()
	require.Equal(t, Nodes(0b101), release, "a node that refused a raise still holds the lock")
	require.Zero(t, late)
}

func TestAttemptRaisesANodeThatHasNotAnswered(t *testing.T) {
	t.Parallel()
	a := asked(5)
	a.Answer(0, yes(1), false)
	a.Answer(1, yes(2), false)
	require.Zero(t, a.Answer(2, yes(3), false), "two more could agree with the largest")
	require.Equal(t, raises(3, 0b10011), a.Answer(3, Vote{State: Failed}, true))
	require.Zero(t, a.Raised(0, 3, yes(3), false))
	require.Equal(t, raises(9, 0b00111), a.Answer(4, yes(9), false))
}

func TestLateAnswerIsRaisedToTheGrantedToken(t *testing.T) {
	t.Parallel()
	a := asked(3)
	a.Answer(0, yes(5), false)
	a.Answer(1, yes(5), false)
	require.Equal(t, raises(5, 0b100), a.Answer(2, yes(4), false), "otherwise the next attempt needs two rounds")
	require.Zero(t, a.Raised(2, 5, yes(5), false))
	require.Equal(t, fencing.Token(5), a.Token)
}

func TestFirstNodes(t *testing.T) {
	t.Parallel()
	order := []int{3, 1, 4, 0, 2}
	all := First("lock", order, All(5))
	require.Equal(t, 3, all.Count())
	for node := range all.Each {
		others := First("lock", order, All(5)&^(1<<node))
		require.Equal(t, 3, others.Count())
		require.False(t, others.Has(node), "it is not usable")
	}
	require.Equal(t, All(5), First("lock", order, 0b00011), "fewer than a quorum are usable")
}

// An attempt asks the remaining nodes if the first ones do not decide it, and only then.
func TestRemainingNodesAreAsked(t *testing.T) {
	t.Parallel()
	const first, rest = Nodes(0b00111), Nodes(0b11000)
	for name, c := range map[string]struct {
		votes []Vote
		want  Nodes
	}{
		"the first ones agree":         {[]Vote{yes(5), yes(5), yes(5)}, 0},
		"one has not answered":         {[]Vote{yes(5), yes(5)}, 0},
		"one has failed":               {[]Vote{{State: Failed}}, rest},
		"one has refused":              {[]Vote{yes(5), {State: Refused}}, rest},
		"the lock is held on one":      {[]Vote{yes(5), yes(5), {State: Held}}, rest},
		"their tokens differ":          {[]Vote{yes(5), yes(6), yes(5)}, rest},
		"the lock is held on a quorum": {[]Vote{{State: Held}, {State: Held}, {State: Held}}, 0},
	} {
		a := NewAttempt(5)
		require.Equal(t, Requests{Acquire: first}, a.Ask(first))
		var got Requests
		for node, vote := range c.votes {
			got = a.Answer(node, vote, false)
		}
		require.Equal(t, Requests{Acquire: c.want}, got, name)
	}
	a := NewAttempt(5)
	a.Ask(first)
	require.Equal(t, Requests{Acquire: rest}, a.AskRest(), "the first ones are slow")
	require.Zero(t, a.AskRest())
}

// A granted attempt is sent to the remaining nodes with its token, and to those that accepted another
// one.
func TestGrantIsSpread(t *testing.T) {
	t.Parallel()
	a := NewAttempt(5)
	a.Ask(0b01111)
	a.Answer(0, yes(9), false)
	a.Answer(1, yes(5), false)
	a.Answer(2, yes(5), false)
	require.Zero(t, a.Answer(3, yes(5), false))
	require.Equal(t, Requests{Acquire: 0b10001, Granted: 5}, a.SpreadGrant())
	require.Zero(t, a.SpreadGrant(), "they were told")
	require.Equal(t, raises(5, 0b10000), a.Answer(4, yes(3), false))

	a = NewAttempt(3)
	a.Ask(0b111)
	a.Answer(0, yes(5), false)
	a.Answer(1, yes(5), false)
	require.Zero(t, a.SpreadGrant(), "the last one may still answer")
	require.Equal(t, Requests{Acquire: 0b100, Granted: 5}, a.Answer(2, yes(7), false))
}

// A release goes to the nodes that may have the attempt. Those that did not answer refuse a late copy.
func TestEnd(t *testing.T) {
	t.Parallel()
	a := NewAttempt(5)
	a.Ask(0b00111)
	a.Answer(0, yes(5), false)
	a.Answer(1, Vote{State: Failed}, true)
	release, late := a.End()
	require.Equal(t, Nodes(0b11111), release, "the failure had it ask the remaining nodes")
	require.Equal(t, Nodes(0b11110), late)
	require.Zero(t, a.AskRest())
	require.Zero(t, a.Answer(2, yes(6), false), "an ended attempt sends nothing")

	a = NewAttempt(5)
	a.Ask(0b00111)
	for node := range 3 {
		a.Answer(node, yes(5), false)
	}
	release, late = a.End()
	require.Equal(t, Nodes(0b00111), release, "the others were not asked")
	require.Zero(t, late)
	require.False(t, a.Renew(), "a renewal would leave the lock on them for a TTL")
	require.Zero(t, a.SpreadGrant())
}

// A release that overtakes a renewal refuses late copies of it, also on nodes that were not asked
// before.
func TestEndDuringARenewal(t *testing.T) {
	t.Parallel()
	a := NewAttempt(5)
	a.Ask(0b00111)
	for node := range 3 {
		a.Answer(node, yes(5), false)
	}
	require.True(t, a.Renew())
	a.Renewed(0, false)
	a.Renewed(3, false)
	a.Renewed(4, true)
	release, late := a.End()
	require.Equal(t, All(5), release)
	require.Equal(t, Nodes(0b10110), late)
}

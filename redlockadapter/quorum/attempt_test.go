package quorum

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

func TestAttemptIsGrantedInOneRoundIfNodesAgree(t *testing.T) {
	t.Parallel()
	a := NewAttempt(3)
	require.Empty(t, a.Answer(0, yes(5)))
	require.Equal(t, Wait, a.Outcome())
	require.Empty(t, a.Answer(2, yes(5)))
	require.Equal(t, Granted, a.Outcome())
	require.Equal(t, fencing.Token(5), a.Token())
}

func TestAttemptRaisesToTheLargestToken(t *testing.T) {
	t.Parallel()
	a := NewAttempt(3)
	require.Empty(t, a.Answer(0, yes(5)))
	require.Empty(t, a.Answer(1, Vote{State: Failed}))
	require.Equal(t, []Raise{{Node: 0, Token: 7}}, a.Answer(2, yes(7)))
	require.Equal(t, fencing.Token(7), a.Proposed())
	require.Equal(t, Wait, a.Outcome(), "one node has accepted 7")
	require.Empty(t, a.Raised(0, 7, yes(7)))
	require.Equal(t, Granted, a.Outcome())
	require.Equal(t, fencing.Token(7), a.Token())
}

func TestAttemptIsLostIfARaiseIsRefused(t *testing.T) {
	t.Parallel()
	a := NewAttempt(3)
	a.Answer(0, yes(5))
	a.Answer(1, Vote{State: Held})
	a.Answer(2, yes(7))
	require.Empty(t, a.Raised(0, 7, Vote{State: Refused}))
	require.Equal(t, Lost, a.Outcome())
	require.Equal(t, fencing.None, a.Token())
}

func TestAttemptRaisesANodeThatHasNotAnswered(t *testing.T) {
	t.Parallel()
	a := NewAttempt(5)
	a.Answer(0, yes(1))
	a.Answer(1, yes(2))
	require.Empty(t, a.Answer(2, yes(3)), "two more could agree with the largest")
	raises := a.Answer(3, Vote{State: Failed})
	require.Equal(t, []Raise{{Node: 0, Token: 3}, {Node: 1, Token: 3}, {Node: 4, Token: 3}}, raises)
	require.Empty(t, a.Raised(0, 3, yes(3)))
	require.Equal(t, []Raise{{Node: 0, Token: 9}, {Node: 1, Token: 9}, {Node: 2, Token: 9}}, a.Answer(4, yes(9)))
}

func TestLateAnswerIsRaisedToTheGrantedToken(t *testing.T) {
	t.Parallel()
	a := NewAttempt(3)
	a.Answer(0, yes(5))
	a.Answer(1, yes(5))
	require.Equal(t, []Raise{{Node: 2, Token: 5}}, a.Answer(2, yes(4)), "otherwise the next attempt needs two rounds")
	require.Empty(t, a.Raised(2, 5, yes(5)))
	require.Equal(t, fencing.Token(5), a.Token())
}

func TestResumedAttemptContinues(t *testing.T) {
	t.Parallel()
	a := Resume([]Vote{{State: Accepted, Token: 5, Raising: true}, {State: Failed}, yes(7)}, 7, fencing.None)
	require.Empty(t, a.Raised(0, 7, yes(7)))
	require.Equal(t, fencing.Token(7), a.Token())
	require.Equal(t, Granted, Resume(make([]Vote, 3), 0, 7).Outcome())
}

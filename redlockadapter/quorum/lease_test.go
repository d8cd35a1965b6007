package quorum

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

func TestRenewalOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                   string
		extended, lost, failed int
		want                   RenewalOutcome
	}{
		{"no answers", 0, 0, 0, RenewalWaits},
		{"too few", 2, 0, 0, RenewalWaits},
		{"a quorum", 3, 0, 0, RenewalExtended},
		{"a quorum, others lost it", 3, 2, 0, RenewalExtended},
		{"a quorum lost it", 1, 3, 0, RenewalLost},
		{"it cannot be extended, but a quorum may have lost it", 0, 1, 2, RenewalWaits},
		{"it can neither be extended nor be lost", 1, 1, 2, RenewalWaits},
		{"all have answered", 2, 2, 1, RenewalUncertain},
		{"all have failed", 0, 0, 5, RenewalUncertain},
	} {
		r := Renewal{Nodes: 5, Extended: c.extended, Lost: c.lost, Failed: c.failed}
		require.Equal(t, c.want, r.Outcome(), c.name)
	}
}

func TestGrantedToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		tokens []fencing.Token
		want   fencing.Token
	}{
		{"none", nil, fencing.None},
		{"a minority", []fencing.Token{5, 5}, fencing.None},
		{"a quorum", []fencing.Token{5, 9, 5, 5}, 5},
		{"they differ", []fencing.Token{5, 9, 5, 9}, fencing.None},
	} {
		require.Equal(t, c.want, GrantedToken(c.tokens, 5), c.name)
	}
}

func TestUninformedNodes(t *testing.T) {
	t.Parallel()
	a := NewAttempt(5)
	a.Answer(0, yes(9))
	a.Answer(1, yes(5))
	a.Answer(2, yes(5))
	require.Empty(t, a.Uninformed(), "it is not granted")
	a.Answer(3, yes(5))
	require.Equal(t, Granted, a.Outcome())
	require.Equal(t, []int{0}, a.Uninformed(), "it has accepted a larger token")
	require.Equal(t, []Raise{{Node: 4, Token: 5}}, a.Answer(4, yes(4)))
	require.Equal(t, []int{0}, a.Uninformed(), "node 4 is being raised")
	a.Answer(0, yes(5)) // it was told
	require.Empty(t, a.Uninformed())
}

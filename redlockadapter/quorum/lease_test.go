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

func TestRelease(t *testing.T) {
	t.Parallel()
	r := Release{Nodes: 5, Free: 2}
	require.False(t, r.Done())
	r.Failed = 2
	require.False(t, r.Done(), "one node can still confirm it")
	r.Failed = 3
	require.True(t, r.Done())
	require.False(t, r.Confirmed())
	r = Release{Nodes: 5, Free: 3}
	require.True(t, r.Done())
	require.True(t, r.Confirmed())
}

package redlockadapter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// Tokens are exact on real servers up to the largest one, although Lua prints large
// numbers as 1e+15.
func TestTokensAreExact(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	b, other, ctx := f.backend(t), f.backend(t), testContext(t)
	session, nonce, fleet := engine.NewSessionID(), engine.Nonce(0), voter(t, b, 0).Fleet
	for _, floor := range []fencing.Token{999_999_999_998, 999_999_999_999_998, 1<<52 - 2, 4_999_999_999_999_998,
		fencing.MaxToken - 4} {
		for i := range f.servers {
			require.NoError(t, b.Advance(ctx, i, serverOf(t, b, i), recovery.Goal{Version: 1, Fleet: fleet, Floor: floor}))
		}
		for want := floor + 1; want <= min(floor+4, fencing.MaxToken); want++ {
			nonce++
			grant, err := b.Acquire(ctx, session, longTTL, request(nonce, "a", "b"))
			require.NoError(t, err)
			require.Equal(t, want, grant.Token)
			found, err := other.Find(ctx, "b", want)
			require.NoError(t, err)
			require.Equal(t, want, found.Token)
			require.NoError(t, other.Renew(ctx, []Held{found})[0])
			stored := 0 // a quorum has it when Acquire returns
			for i := range f.servers {
				if f.record(t, i, "a")["token"] == want.String() && voter(t, b, i).Max == want {
					stored++
				}
			}
			require.GreaterOrEqual(t, stored, 2)
			list, err := other.List(ctx, "", "", 10)
			require.NoError(t, err)
			require.NotEmpty(t, list)
			require.Len(t, list[0].Holders, 1)
			require.Equal(t, want, list[0].Holders[0].Token)
			require.NoError(t, other.Release(ctx, found))
		}
	}
	_, err := b.Acquire(ctx, session, longTTL, request(nonce+1, "a"))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, "ceiling")
	_, err = redlockadapter.New(ctx, f.config)
	require.ErrorIs(t, err, redlockadapter.ErrNodeSetup)
	require.ErrorContains(t, err, "near 2^53")
}

// initRanges makes the nodes of a new fleet voters, and changes the range of each.
func (f *fleet) initRanges(t *testing.T, floors, ceilings []fencing.Token) {
	t.Helper()
	f.init(t)
	for i := range f.servers {
		require.NoError(t, f.client(t, i).HSet(testContext(t), keyOf(t, f, i), "max", floors[i].String(), "floor",
			floors[i].String(),
			"ceiling", ceilings[i].String()).Err())
	}
}

// A raise does not exceed the ceiling of a node.
func TestRaiseRespectsTheCeiling(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.initRanges(t, []fencing.Token{10, 10, 20}, []fencing.Token{14, 14, 100})
	b := f.backend(t)
	f.servers[1].Stop() // the other two must agree on a token above 20
	_, err := newLocker(t, f.config).try(b)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.LessOrEqual(t, voter(t, b, 0).Max, fencing.Token(14))
}

// An acquire does not exceed the ceiling of a node.
func TestAcquireRespectsTheCeiling(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.initRanges(t, []fencing.Token{10, 10, 12}, []fencing.Token{14, 15, 16})
	b, k, ctx := f.backend(t), newLocker(t, f.config), testContext(t)
	for range 10 {
		token, err := k.try(b)
		if err != nil {
			require.ErrorIs(t, err, engine.ErrUnavailable)
			require.ErrorContains(t, err, "ceiling")
			break
		}
		require.LessOrEqual(t, token, fencing.Token(15), "a quorum has this ceiling or a larger one")
	}
	for i := range f.servers {
		state := voter(t, b, i)
		require.LessOrEqual(t, state.Max, 14+fencing.Token(i))
		require.NoError(t, b.Advance(ctx, i, serverOf(t, b, i), recovery.Goal{Version: 1, Fleet: state.Fleet, Ceiling: 100}))
	}
	require.LessOrEqual(t, k.acquire(b), fencing.Token(20))
}

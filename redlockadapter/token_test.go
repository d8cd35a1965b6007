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
	fleet := engine.Fleet{}
	for _, s := range f.servers {
		fleet.Addresses = append(fleet.Addresses, s.Addr)
	}
	session, nonce := engine.NewSessionID(), engine.Nonce(0)
	for _, floor := range []fencing.Token{999_999_999_998, 999_999_999_999_998, 1<<52 - 2, 4_999_999_999_999_998, fencing.MaxToken - 4} {
		for i := range f.servers {
			require.NoError(t, b.Advance(ctx, i, recovery.Goal{Version: 1, Fleet: fleet.Fingerprint(), Floor: floor}))
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

// initRanges gives each node of a new fleet its own range.
func (f *fleet) initRanges(t *testing.T, floors, ceilings []fencing.Token) *redlockadapter.Backend {
	t.Helper()
	f.config.Topology = func() engine.Topology { return engine.Topology{} } // no process recovers the nodes by itself
	keeper := f.backend(t)
	f.config.Topology = nil
	for i := range f.servers {
		require.NoError(t, keeper.Join(testContext(t), i, "join", 1))
		_, err := keeper.Initialise(testContext(t), i, recovery.Range{Join: "join", Version: 1, Floor: floors[i], Ceiling: ceilings[i]})
		require.NoError(t, err)
	}
	return keeper
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
	keeper, ctx := f.initRanges(t, []fencing.Token{10, 10, 12}, []fencing.Token{14, 15, 16}), testContext(t)
	b, k := f.backend(t), newLocker(t, f.config)
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
		require.NoError(t, keeper.Advance(ctx, i, recovery.Goal{Version: 1, Fleet: state.Fleet, Ceiling: 100}))
	}
	require.LessOrEqual(t, k.acquire(b), fencing.Token(20))
}

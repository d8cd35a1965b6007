package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/memgate"
)

func increment(value *int) error { *value++; return nil }

// TestBoundGate checks which name and which token a bound gate uses.
func TestBoundGate(t *testing.T) {
	ctx := t.Context()
	c := newClient()
	defer c.Close(ctx)
	gate := memgate.New[int](fencing.Rule{})
	holds := func(name fencing.Resource, value int, token fencing.Token) {
		t.Helper()
		got, mark, err := gate.Get(ctx, name)
		require.NoError(t, err)
		require.Equal(t, value, got)
		require.Equal(t, token, mark)
	}

	l, err := c.Acquire(ctx, "a")
	require.NoError(t, err)
	bound := lease.Gate(l, gate)
	require.NoError(t, bound.Enter(ctx))
	holds("a", 0, l.Token())
	require.NoError(t, bound.Do(ctx, increment))
	require.NoError(t, bound.Do(ctx, increment), "the second write of the holder")
	holds("a", 2, l.Token())

	set, err := c.Acquire(ctx, "y", lease.WithSet("x"))
	require.NoError(t, err)
	require.NoError(t, lease.Gate(set, gate).Do(ctx, increment))
	holds("y", 1, set.Token())
	require.NoError(t, lease.Gate(set, gate).For("x").Do(ctx, increment))
	holds("x", 1, set.Token())

	permit, err := c.Acquire(ctx, "p", lease.WithPermits(2))
	require.NoError(t, err)
	require.NoError(t, lease.Gate(permit, gate).For("p").Do(ctx, increment))
	holds(fencing.Resource("p").Slot(1), 1, permit.Token())
	holds("p", 0, fencing.None)
}

// TestBoundGateRefusesOtherResources checks that a bound gate calls the storage only for
// resources that the lease covers.
func TestBoundGateRefusesOtherResources(t *testing.T) {
	ctx := t.Context()
	c := newClient()
	defer c.Close(ctx)
	gate := memgate.New[int](fencing.Rule{})
	l, err := c.Acquire(ctx, "a", lease.WithSet("b"))
	require.NoError(t, err)
	for _, name := range []fencing.Resource{"c", "", fencing.Resource("a").Slot(1)} {
		other := lease.Gate(l, gate).For(name)
		require.ErrorIs(t, other.Enter(ctx), lease.ErrInvalid, "%q", name)
		require.ErrorIs(t, other.Do(ctx, increment), lease.ErrInvalid, "%q", name)
	}
	require.Zero(t, gate.Counts())
	require.NoError(t, lease.Gate(l, gate).Enter(ctx), "the others do not change the bound gate")
}

// TestBoundGateOfAnEndedLease checks the documented errors of a lease that has ended, and
// that the storage is not called.
func TestBoundGateOfAnEndedLease(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(ctx context.Context, c *lease.Client, l *lease.Lease) error
		want error
	}{
		"deadline": {func(context.Context, *lease.Client, *lease.Lease) error {
			time.Sleep(ttl)
			return nil
		}, lease.ErrExpired},
		"released": {func(ctx context.Context, _ *lease.Client, l *lease.Lease) error {
			return l.Release(ctx)
		}, lease.ErrReleased},
		"broken": {func(ctx context.Context, c *lease.Client, l *lease.Lease) error {
			return c.Break(ctx, l.Resource(), l.Token())
		}, lease.ErrTaken},
		"closed": {func(ctx context.Context, c *lease.Client, _ *lease.Lease) error { return c.Close(ctx) }, lease.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient()
				defer c.Close(t.Context())
				gate := memgate.New[int](fencing.Rule{})
				l, err := c.Acquire(t.Context(), "a", lease.WithTTL(ttl), lease.WithoutRenewal())
				require.NoError(t, err)
				bound := lease.Gate(l, gate)
				require.NoError(t, bound.Do(t.Context(), increment))
				require.NoError(t, test.end(t.Context(), c, l))
				before := gate.Counts()
				require.ErrorIs(t, bound.Enter(t.Context()), test.want)
				require.ErrorIs(t, bound.Do(t.Context(), increment), test.want)
				require.Equal(t, before, gate.Counts())
			})
		})
	}
}

// TestBoundGateRefusesAFormerHolder checks that the gate decides for a holder that does
// not know that it has lost its lease.
func TestBoundGateRefusesAFormerHolder(t *testing.T) {
	ctx := t.Context()
	c := newClient()
	defer c.Close(ctx)
	gate := memgate.New[int](fencing.Rule{})
	l, err := c.Acquire(ctx, "a")
	require.NoError(t, err)
	require.NoError(t, gate.Enter(ctx, "a", l.Token()+1), "the next holder")
	require.ErrorIs(t, lease.Gate(l, gate).Do(ctx, increment), fencing.ErrStale)
}

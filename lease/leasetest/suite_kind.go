package leasetest

import (
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// refuses reports whether the engine does not support a feature, and checks that it
// says so.
func (f *fixture) refuses(feature Feature, options ...lease.AcquireOption) bool {
	f.Helper()
	if !slices.Contains(f.Unsupported, feature) {
		return false
	}
	_, err := f.client().Acquire(f.ctx, f.name("a"), options...)
	require.ErrorIs(f, err, engine.ErrUnsupported)
	require.ErrorContains(f, err, "correctness", "the error names the mode that supports it")
	return true
}

var kindTests = []conformance{
	{"re-entry", func(f *fixture) {
		c, other := f.client(), f.client()
		outer := f.acquire(c, f.name("a"), lease.WithHolder("worker"))
		inner := f.acquire(c, f.name("a"), lease.WithHolder("worker"))
		require.Equal(f, outer.Token(), inner.Token(), "a new token would fence out the outer lease")
		third, err := c.TryAcquire(f.ctx, f.name("a"), lease.WithHolder("worker"))
		require.NoError(f, err)
		require.Equal(f, outer.Token(), third.Token())

		f.requireHeld(c, f.name("a"), lease.WithHolder("someone else"))
		f.requireHeld(other, f.name("a"), lease.WithHolder("worker"))

		f.release(inner)
		require.ErrorIs(f, inner.Err(), engine.ErrReleased)
		require.NoError(f, outer.Err(), "the outer lease is still held")
		f.requireHeld(other, f.name("a"))
		f.release(third)
		f.release(outer)
		next := f.acquire(c, f.name("a"), lease.WithHolder("worker"))
		require.True(f, next.Token().Newer(outer.Token()))
	}},
	{"re-entry ends with the loss", func(f *fixture) {
		c := f.client()
		outer := f.acquire(c, f.name("a"), lease.WithHolder("worker"))
		inner := f.acquire(c, f.name("a"), lease.WithHolder("worker"))
		require.NoError(f, f.client().Break(f.ctx, f.name("a"), outer.Token()))
		f.wait(outer.Done())
		f.wait(inner.Done())
		again := f.acquire(c, f.name("a"), lease.WithHolder("worker"))
		require.True(f, again.Token().Newer(outer.Token()))
	}},
	{"concurrent re-entry", func(f *fixture) {
		c := f.client()
		tokens := make([]fencing.Token, 16)
		leases := make([]*lease.Lease, len(tokens))
		var wg sync.WaitGroup
		for i := range tokens {
			wg.Go(func() {
				l, err := c.Acquire(f.ctx, f.name("a"), lease.WithHolder("worker"))
				if err != nil {
					f.Error(err)
					return
				}
				leases[i], tokens[i] = l, l.Token()
			})
		}
		wg.Wait()
		require.Len(f, slices.Compact(tokens), 1)
		for _, l := range leases {
			f.requireHeld(f.client(), f.name("a"))
			f.release(l)
		}
		f.acquire(f.client(), f.name("a"))
	}},
	{"a holder does not wait for itself", func(f *fixture) {
		c := f.client()
		f.acquire(c, f.name("a"), lease.WithHolder("worker"))
		_, err := c.Acquire(f.ctx, f.name("a"), lease.WithHolder("worker"), lease.WithSet(f.name("b")))
		require.ErrorIs(f, err, engine.ErrInvalid)
		_, err = c.Acquire(f.ctx, f.name("a"), lease.WithHolder("worker"), lease.WithShared())
		require.ErrorIs(f, err, engine.ErrInvalid)
	}},
	{"shared and exclusive", func(f *fixture) {
		if f.refuses(FeatureShared, lease.WithShared()) {
			return
		}
		a, b := f.client(), f.client()
		r1, r2 := f.acquire(a, f.name("a"), lease.WithShared()), f.acquire(b, f.name("a"), lease.WithShared())
		require.NotEqual(f, r1.Token(), r2.Token())
		f.requireHeld(a, f.name("a"))

		writer := f.start(f.name("a"))
		if f.FIFO {
			f.requireHeld(b, f.name("a"), lease.WithShared())
		}
		f.release(r1)
		require.True(f, writer.isWaiting())
		f.release(r2)
		w := writer.granted()
		require.True(f, w.Token().Newer(r1.Token()) && w.Token().Newer(r2.Token()))
		f.requireHeld(b, f.name("a"), lease.WithShared())
		reader1, reader2 := f.start(f.name("a"), lease.WithShared()), f.start(f.name("a"), lease.WithShared())
		f.release(w)
		require.True(f, reader1.granted().Token().Newer(w.Token()))
		require.True(f, reader2.granted().Token().Newer(w.Token()))
	}},
	{"permits", func(f *fixture) {
		if f.refuses(FeaturePermits, lease.WithPermits(3)) {
			return
		}
		c := f.client()
		var held []*lease.Lease
		var slots []int
		for range 3 {
			l := f.acquire(c, f.name("a"), lease.WithPermits(3))
			held, slots = append(held, l), append(slots, l.Slot())
			require.Equal(f, f.name("a").Slot(l.Slot()), l.GateResource())
		}
		require.ElementsMatch(f, []int{1, 2, 3}, slots)
		f.requireHeld(f.client(), f.name("a"), lease.WithPermits(3))
		f.requireHeld(f.client(), f.name("a"))
		waiter := f.start(f.name("a"), lease.WithPermits(3))
		f.release(held[1])
		next := waiter.granted()
		require.Equal(f, slots[1], next.Slot())
		require.True(f, next.Token().Newer(held[1].Token()), "tokens grow within a slot")
	}},
	{"the number of permits belongs to the lock", func(f *fixture) {
		if f.refuses(FeaturePermits, lease.WithPermits(2)) {
			return
		}
		c, other := f.client(), f.client()
		held := f.acquire(c, f.name("a"), lease.WithPermits(2))
		for _, n := range []int{1, 3} {
			_, err := other.Acquire(f.ctx, f.name("a"), lease.WithPermits(n))
			require.ErrorIs(f, err, lease.ErrPermits)
			require.ErrorContains(f, err, "has 2 permits")
			err = f.retry(func() error {
				_, err := other.TryAcquire(f.ctx, f.name("a"), lease.WithPermits(n))
				return err
			})
			require.ErrorIs(f, err, lease.ErrPermits)
		}
		f.release(f.acquire(other, f.name("a"), lease.WithPermits(2)))
		f.release(held)
		f.release(f.acquire(other, f.name("a"), lease.WithPermits(3)))
	}},
	{"sets", func(f *fixture) {
		if f.refuses(FeatureSets, lease.WithSet(f.name("b"))) {
			return
		}
		a, b := f.client(), f.client()
		l := f.acquire(a, f.name("b"), lease.WithSet(f.name("a"), f.name("c")))
		require.Equal(f, f.name("b"), l.Resource())
		require.Equal(f, []fencing.Resource{f.name("a"), f.name("b"), f.name("c")}, l.Resources())
		for _, name := range []string{"a", "b", "c"} {
			f.requireHeld(b, f.name(name))
		}
		f.requireHeld(b, f.name("x"), lease.WithSet(f.name("c")))
		x := f.acquire(b, f.name("x"))
		require.NoError(f, x.Err(), "a set that was not granted is not held in part")

		overlapping := f.start(f.name("c"), lease.WithSet(f.name("d")))
		f.release(l)
		next := overlapping.granted()
		require.True(f, next.Token().Newer(l.Token()))
		f.acquire(b, f.name("a"))
		f.requireHeld(b, f.name("d"))
		f.release(next)
		f.acquire(b, f.name("d"))
	}},
}

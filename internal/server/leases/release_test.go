package leases

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// entries returns the number of log entries that a call commits.
func (s testService) entries(call func()) uint64 {
	before := s.router.Node.Status().Commit
	call()
	return s.router.Node.Status().Commit - before
}

func (s testService) release(t testing.TB, r *pb.ReleaseRequest) bool {
	t.Helper()
	response, err := s.Release(context.Background(), r)
	require.NoError(t, err)
	return response.Released
}

// A pair commits no more than the log needs.
func TestEntriesOfAPair(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id := s.openSession(t)
	for name, c := range map[string]struct {
		entries uint64
		pair    func(nonce uint64)
	}{
		"a session for the lease: open, acquire, close": {3, func(uint64) {
			granted, err := s.Acquire(context.Background(), &pb.AcquireRequest{Resource: "a", Wait: "1m"})
			require.NoError(t, err)
			require.True(t, s.release(t, &pb.ReleaseRequest{Resource: "a", Token: granted.Token}))
		}},
		"the caller's session: acquire, release": {2, func(nonce uint64) {
			_, err := s.acquire(id, "a", nonce)
			require.NoError(t, err)
			require.True(t, s.release(t, &pb.ReleaseRequest{SessionId: id.String(), Nonce: nonce}))
		}},
	} {
		least := uint64(math.MaxUint64) // on a busy machine the proof of leadership ages, and a renewal commits a barrier
		for nonce := range uint64(20) {
			least = min(least, s.entries(func() { c.pair(nonce + 1) }))
		}
		require.Equal(t, c.entries, least, name)
	}
}

// Only a read through the log finds that a lease is not held: a former leader may not have applied the grant.
func TestReleaseOfAnUnknownTokenReadsTheLog(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	_, err := s.Acquire(context.Background(), &pb.AcquireRequest{Resource: "a"})
	require.NoError(t, err)
	require.NotZero(t, s.entries(func() {
		require.False(t, s.release(t, &pb.ReleaseRequest{Resource: "a", Token: 1 << 40}))
	}))
}

// A session that was opened for one lease, and used for another, ends with the last of them.
func TestReleaseKeepsOtherLeasesOfItsSession(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	first, err := s.Acquire(context.Background(), &pb.AcquireRequest{Resource: "a"})
	require.NoError(t, err)
	id, err := engine.ParseSessionID(first.SessionId)
	require.NoError(t, err)
	second, err := s.acquire(id, "b", 2)
	require.NoError(t, err)
	require.True(t, s.release(t, &pb.ReleaseRequest{Resource: "a", Token: first.Token}))
	holds, err := s.attached(t, id).Holds()
	require.NoError(t, err)
	require.Len(t, holds, 1)
	require.False(t, s.release(t, &pb.ReleaseRequest{SessionId: id.String(), Nonce: 3}), "this attempt holds nothing")
	require.True(t, s.release(t, &pb.ReleaseRequest{Resource: "b", Token: second.Token}))
	_, err = s.attach(context.Background(), id, nil)
	require.ErrorIs(t, err, engine.ErrExpired)
}

// No lease has such a token: the call is refused, and its outcome is not uncertain.
func TestBreakRefusesATokenThatNoLeaseHas(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	for _, token := range []uint64{0, uint64(fencing.MaxToken) + 1, math.MaxUint64} {
		_, err := s.Break(context.Background(), &pb.BreakRequest{Resource: "a", Token: token})
		require.ErrorIs(t, err, engine.ErrInvalid, token)
	}
}

// A break that an earlier call may have carried out is never reported as one that has not happened.
func TestBreakStaysUncertain(t *testing.T) {
	t.Parallel()
	perhaps := fmt.Errorf("%w: %w", engine.ErrUncertain, engine.ErrVersion)
	for _, c := range []struct {
		name     string
		first    error
		then     error
		earlier  bool
		outcomes []error // that the last error matches
	}{
		{"it is done", nil, nil, false, nil},
		{"the second call breaks the lease", perhaps, nil, false, nil},
		{"the first call has broken it", perhaps, engine.ErrNotHeld, true, nil},
		{"there is no newer topology", perhaps, engine.ErrUnavailable, false, []error{engine.ErrUncertain}},
		{"the topology changes again", perhaps, engine.ErrVersion, false, []error{engine.ErrUncertain, engine.ErrVersion}},
		{"nobody holds the lock", engine.ErrVersion, engine.ErrNotHeld, false, []error{engine.ErrNotHeld}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b breaking
			earlier, err := b.after(c.first)
			require.False(t, earlier)
			require.Equal(t, c.first, err)
			earlier, err = b.after(c.then)
			require.Equal(t, c.earlier, earlier)
			for _, want := range c.outcomes {
				require.ErrorIs(t, err, want)
			}
			require.Equal(t, c.outcomes == nil, err == nil)
		})
	}
}

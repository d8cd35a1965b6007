package hub

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// wait queues an attempt behind the holder of "a", and registers a waiter.
func (r *replica) wait(incarnation uint64, nonce engine.Nonce) *waiter {
	result := r.apply(&machine.Acquire{Session: r.id, Incarnation: incarnation,
		Request: engine.Request{Nonce: nonce, Resources: []fencing.Resource{"a"}, Mode: engine.Correctness, Wait: true,
			Holder: "test"}})
	require.Equal(r.t, machine.Queued, result.Code)
	return r.expect(Attempt{r.id, incarnation, nonce})
}

// waiter is a caller that counts how often its wait has ended.
type waiter struct {
	*Wait
	ended int
}

// expect registers a waiter.
func (r *replica) expect(a Attempt) *waiter {
	w := &waiter{}
	w.Wait = NewWait(func(*Wait) { w.ended++ })
	r.hub.Expect(a, w.Wait)
	return w
}

func requireWaiting(t *testing.T, w *waiter) {
	t.Helper()
	require.Zero(t, w.ended, "the wait has ended")
}

func requireEnded(t *testing.T, w *waiter) (machine.Result, error) {
	t.Helper()
	require.Equal(t, 1, w.ended, "the wait has not ended, or twice")
	return w.Result, w.Err
}

func TestReleaseGrantsTheNextWaiter(t *testing.T) {
	r := newReplica(t)
	k, first := r.open("a")
	second, third := r.wait(k, 2), r.wait(k, 3)
	copied := r.expect(Attempt{r.id, k, 2})
	r.apply(&machine.Release{Session: r.id, Incarnation: k, Nonce: 1})
	result, err := requireEnded(t, second)
	require.NoError(t, err)
	require.Equal(t, machine.Granted, result.Code)
	require.True(t, result.Token.Newer(first))
	same, err := requireEnded(t, copied)
	require.NoError(t, err)
	require.Equal(t, result, same, "a second caller of the attempt")
	requireWaiting(t, third)

	r.apply(&machine.Release{Session: r.id, Incarnation: k, Nonce: 3})
	_, err = requireEnded(t, third)
	require.ErrorIs(t, err, engine.ErrHeld)
	require.ErrorContains(t, err, "attempt 3 was released")
	require.True(t, r.hub.Idle())
}

func TestEndOfTheSessionEndsItsWaits(t *testing.T) {
	r := newReplica(t)
	k, _ := r.open("a")
	w := r.wait(k, 2)
	r.expire(k)
	_, err := requireEnded(t, w)
	require.ErrorIs(t, err, engine.ErrExpired)
}

func TestMigrationEndsWaits(t *testing.T) {
	r := newReplica(t)
	k, _ := r.open("a")
	w := r.wait(k, 2)
	fleet := engine.Fleet{Addresses: []string{"127.0.0.1:6379"}}
	require.Equal(t, machine.Done, r.apply(&machine.SetFleet{Fleet: fleet}).Code)
	policy := engine.Policy{Prefix: "a", Mode: engine.Efficiency}
	require.Equal(t, machine.Done, r.apply(&machine.SetPolicy{Policy: policy}).Code)
	require.Equal(t, machine.Done, r.apply(&machine.EndRequests{Max: 1}).Code)
	result, err := requireEnded(t, w)
	require.NoError(t, err)
	require.Equal(t, machine.Migrating, result.Code)
}

func TestLeaveEndsARegistration(t *testing.T) {
	r := newReplica(t)
	k, _ := r.open("a")
	w := r.wait(k, 2)
	other := r.expect(Attempt{r.id, k, 2})
	require.True(t, r.hub.Leave(Attempt{r.id, k, 2}, w.Wait))
	r.apply(&machine.Release{Session: r.id, Incarnation: k, Nonce: 1})
	requireWaiting(t, w)
	_, err := requireEnded(t, other)
	require.NoError(t, err)
	require.False(t, r.hub.Leave(Attempt{r.id, k, 2}, other.Wait), "its wait has ended")
	require.True(t, r.hub.Idle())
	require.False(t, r.hub.HasWaits())
}

func TestAbortEndsAllWaits(t *testing.T) {
	r := newReplica(t)
	k, _ := r.open("a")
	first, second := r.wait(k, 2), r.wait(k, 3)
	r.hub.Abort(engine.ErrUncertain)
	for _, w := range []*waiter{first, second} {
		_, err := requireEnded(t, w)
		require.ErrorIs(t, err, engine.ErrUncertain)
	}
	require.True(t, r.hub.Idle())
	require.False(t, r.hub.HasWaits())
}

// Waiters get an error when no tokens are left.
func TestWaitersFailWithoutTokens(t *testing.T) {
	for name, spend := range map[string]func(r *replica, k uint64){
		"the last token is granted": func(r *replica, k uint64) {
			r.apply(&machine.RaiseFloor{By: fencing.MaxToken - r.machine.LastToken() - 1})
			r.acquireAs(k, 9, "b")
		},
		"the floor is raised": func(r *replica, _ uint64) {
			r.apply(&machine.RaiseFloor{By: fencing.MaxToken - r.machine.LastToken()})
		},
		"a snapshot is restored": func(r *replica, _ uint64) {
			other := newReplica(r.t)
			other.restore(r)
			other.apply(&machine.RaiseFloor{By: fencing.MaxToken - r.machine.LastToken()})
			r.restore(other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			k, _ := r.open("a")
			w := r.wait(k, 2)
			spend(r, k)
			result, err := requireEnded(t, w)
			require.NoError(t, err)
			require.Equal(t, machine.Exhausted, result.Code)
			require.Equal(t, machine.Exhausted, OutcomeOf(r.machine, Attempt{r.id, k, 2}).Code, "a repeated acquire")
		})
	}
}

func (r *replica) acquireAs(k uint64, nonce engine.Nonce, lock fencing.Resource) {
	result := r.apply(&machine.Acquire{Session: r.id, Incarnation: k,
		Request: engine.Request{Nonce: nonce, Resources: []fencing.Resource{lock}, Mode: engine.Correctness, Holder: "test"}})
	require.Equal(r.t, machine.Granted, result.Code)
}

func TestRestoredStateAnswersWaiters(t *testing.T) {
	leader, follower := newReplica(t), newReplica(t)
	follower.id = leader.id
	k, _ := leader.open("a")
	leader.wait(k, 2)
	w := follower.expect(Attempt{leader.id, k, 2})
	follower.restore(leader)
	requireWaiting(t, w)
	leader.apply(&machine.Release{Session: leader.id, Incarnation: k, Nonce: 1})
	follower.restore(leader)
	result, err := requireEnded(t, w)
	require.NoError(t, err)
	require.Equal(t, machine.Granted, result.Code)

	w = follower.expect(Attempt{leader.id, k, 3})
	follower.restore(leader)
	_, err = requireEnded(t, w)
	require.ErrorIs(t, err, engine.ErrUncertain, "an attempt that the new state does not know")
	leader.expire(k)
	w = follower.expect(Attempt{leader.id, k, 2})
	follower.restore(leader)
	_, err = requireEnded(t, w)
	require.ErrorIs(t, err, engine.ErrExpired)
}

func TestWatchersAreNotified(t *testing.T) {
	r := newReplica(t)
	changed := func(w Watcher) bool {
		select {
		case <-w:
			return true
		default:
			return false
		}
	}
	w, other := NewWatcher(), NewWatcher()
	require.True(t, changed(w), "the first status is due at once")
	require.True(t, changed(other))
	stop := r.hub.Watch("a", w)
	defer r.hub.Watch("b", other)()
	r.open("a")
	require.True(t, changed(w))
	require.False(t, changed(other))
	r.restore(r)
	require.True(t, changed(w))
	require.True(t, changed(other))
	stop()
	r.apply(&machine.EndSessions{})
	require.False(t, changed(w))
}

// Callers that give up must not leave anything behind on the leader.
func TestRemovedWaitersAreForgotten(t *testing.T) {
	h, a := New(), Attempt{Nonce: 1}
	first, second := NewWait(nil), NewWait(nil)
	h.Expect(a, first)
	h.Expect(a, second)
	require.True(t, h.Leave(a, first))
	require.False(t, h.Idle(), "the second still waits")
	require.True(t, h.Leave(a, second))
	require.True(t, h.Idle())
}

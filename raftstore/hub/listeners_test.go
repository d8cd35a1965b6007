package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// replica is a machine and its hub, to which the test applies commands.
type replica struct {
	t       *testing.T
	machine *machine.Machine
	hub     *Hub
	id      engine.SessionID
}

func newReplica(t *testing.T) *replica {
	return &replica{t: t, machine: machine.New(), hub: New(), id: engine.NewSessionID()}
}

// apply applies an entry with one command. As in a log, EndRequests follows.
func (r *replica) apply(c machine.Command) machine.Result {
	result := r.applyOnly(c)
	r.applyOnly(&machine.EndRequests{Max: machine.MaxEndRequests})
	return result
}

func (r *replica) applyOnly(c machine.Command) machine.Result {
	result, events := r.machine.Apply(c)
	for _, call := range r.hub.Applied(r.machine, c, result, events, engine.Instant{}) {
		call()
	}
	return result
}

// open opens the session and acquires lock as its first attempt.
func (r *replica) open(lock fencing.Resource) (incarnation uint64, token fencing.Token) {
	incarnation = r.apply(&machine.OpenSession{Session: r.id, TTL: time.Minute}).Incarnation
	return incarnation, r.acquire(incarnation, lock)
}

func (r *replica) acquire(incarnation uint64, lock fencing.Resource) fencing.Token {
	result := r.apply(&machine.Acquire{Session: r.id, Incarnation: incarnation,
		Request: engine.Request{Nonce: 1, Resources: []fencing.Resource{lock}, Mode: engine.Correctness, Holder: "test"}})
	require.Equal(r.t, machine.Granted, result.Code)
	return result.Token
}

func (r *replica) expire(incarnation uint64) {
	require.Equal(r.t, machine.Done, r.apply(&machine.Expire{Session: r.id, Incarnation: incarnation}).Code)
}

// listen returns a listener, and the number of its notifications.
func (r *replica) listen() (*Listener, *int) {
	notified := new(int)
	l := &Listener{Lost: func(engine.Nonce, error) { *notified++ }}
	r.hub.Listen(r.id, l)
	return l, notified
}

func (r *replica) identify(l *Listener, incarnation uint64) {
	for _, call := range r.hub.Identify(r.id, l, incarnation, r.machine) {
		call()
	}
}

// requireNotified breaks a lease, and requires that the listener is notified.
func (r *replica) requireNotified(notified *int, lock fencing.Resource, token fencing.Token) {
	r.t.Helper()
	before := *notified
	require.Equal(r.t, machine.Done, r.apply(&machine.Break{Resource: lock, Token: token}).Code)
	require.Equal(r.t, before+1, *notified, "the listener was removed")
}

// restore replaces the state by that of another replica.
func (r *replica) restore(from *replica) {
	restored, err := machine.Restore(from.machine.Snapshot())
	require.NoError(r.t, err)
	calls := r.hub.Restored(r.machine, restored)
	r.machine = restored
	for _, call := range calls {
		call()
	}
}

// A session that has ended loses its leases one after the other. Its listener is notified of each,
// also if a snapshot without them replaces the state, and is removed after the last one.
func TestListenerStaysUntilTheLastLeaseHasEnded(t *testing.T) {
	for _, restored := range []bool{false, true} {
		for _, late := range []bool{false, true} {
			r := newReplica(t)
			l, notified := r.listen()
			k, _ := r.open("a")
			for nonce := range engine.Nonce(2) {
				r.apply(&machine.Acquire{Session: r.id, Incarnation: k, Request: engine.Request{Nonce: nonce + 2,
					Mode:      engine.Correctness,
					Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("more/%d", nonce))}}})
			}
			if !late {
				r.identify(l, k)
			}
			r.applyOnly(&machine.Expire{Session: r.id, Incarnation: k})
			require.Zero(t, *notified)
			require.Equal(t, machine.Ending, r.applyOnly(&machine.EndRequests{Max: 1}).Code)
			if late {
				r.identify(l, k)
			}
			require.Equal(t, 1, *notified)
			require.NotEmpty(t, r.hub.listeners)
			if restored {
				r.restore(newReplica(t))
				require.Equal(t, 3, *notified)
				continue
			}
			require.Equal(t, machine.Done, r.applyOnly(&machine.EndRequests{Max: 2}).Code)
			require.Equal(t, 3, *notified)
			require.Empty(t, r.hub.listeners)
		}
	}
}

// A session without leases has no more losses.
func TestListenerOfAnEmptySessionIsRemoved(t *testing.T) {
	r := newReplica(t)
	l, _ := r.listen()
	k := r.apply(&machine.OpenSession{Session: r.id, TTL: time.Minute}).Incarnation
	r.identify(l, k)
	r.applyOnly(&machine.CloseSession{Session: r.id, Incarnation: k})
	require.Empty(t, r.hub.listeners)
}

// The end of one incarnation does not remove the listeners of the next one, even
// if that is just being opened.
func TestEndOfAnIncarnationKeepsOtherListeners(t *testing.T) {
	for name, end := range map[string]func(r *replica, incarnation uint64) machine.Result{
		"closed": func(r *replica, incarnation uint64) machine.Result {
			return r.apply(&machine.CloseSession{Session: r.id, Incarnation: incarnation})
		},
		"expired": func(r *replica, incarnation uint64) machine.Result {
			return r.apply(&machine.Expire{Session: r.id, Incarnation: incarnation})
		},
		"all ended": func(r *replica, _ uint64) machine.Result { return r.apply(&machine.EndSessions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			k1, _ := r.open("a")
			l, notified := r.listen()
			require.Equal(t, machine.Done, end(r, k1).Code)
			k2, token := r.open("a")
			r.identify(l, k2)
			require.Zero(t, *notified, "the loss of the previous incarnation")
			r.requireNotified(notified, "a", token)
			end(r, k2)
			require.Empty(t, r.hub.listeners, "it has ended")
		})
	}
}

// A replica that lags applies the end of the previous incarnation long after the
// leader has opened the next one. Both have used the same nonce.
func TestLaggingReplicaDoesNotReportThePreviousIncarnation(t *testing.T) {
	leader, follower := newReplica(t), newReplica(t)
	follower.id = leader.id
	k1, _ := leader.open("a")
	follower.open("a")
	leader.expire(k1)
	k2, _ := leader.open("b")

	l, notified := follower.listen()
	follower.identify(l, k2)
	follower.expire(k1)
	require.Zero(t, *notified, "the loss of the previous incarnation")
	_, token := follower.open("b")
	follower.requireNotified(notified, "b", token)
}

// A replica that has not applied the session yet keeps its listeners, whether it
// catches up by the log or by a snapshot, until the session has ended there.
func TestLaggingReplicaKeepsItsListeners(t *testing.T) {
	for name, catchUp := range map[string]func(leader, follower *replica){
		"log":      func(_, follower *replica) { follower.open("a") },
		"snapshot": func(leader, follower *replica) { follower.restore(leader) },
	} {
		t.Run(name, func(t *testing.T) {
			leader, follower := newReplica(t), newReplica(t)
			follower.id = leader.id
			k1, _ := leader.open("a")
			l, notified := follower.listen()
			follower.identify(l, k1)
			catchUp(leader, follower)
			require.Zero(t, *notified)
			require.Len(t, follower.hub.listeners, 1)

			leader.expire(k1)
			follower.restore(leader)
			require.Equal(t, 1, *notified)
			require.Empty(t, follower.hub.listeners, "the snapshot says that it has ended")
		})
	}
}

// Identify reports the losses since Listen.
func TestLossBeforeIdentifyIsReported(t *testing.T) {
	r := newReplica(t)
	k1, token := r.open("a")
	l, notified := r.listen()
	require.Equal(t, machine.Done, r.apply(&machine.Break{Resource: "a", Token: token}).Code)
	require.Zero(t, *notified)
	r.identify(l, k1)
	require.Equal(t, 1, *notified)
	r.expire(k1)
	require.Equal(t, 1, *notified)
}

// A session that ends before Identify leaves no listener behind.
func TestListenerOfAnEndedSessionIsRemoved(t *testing.T) {
	r := newReplica(t)
	l, notified := r.listen()
	k1, _ := r.open("a")
	r.expire(k1)
	r.identify(l, k1)
	require.Equal(t, 1, *notified)
	require.Empty(t, r.hub.listeners)

	l, notified = r.listen()
	k2, _ := r.open("a")
	r.expire(k2)
	k3, token := r.open("a")
	r.identify(l, k2)
	require.Equal(t, 1, *notified)
	require.Empty(t, r.hub.listeners)

	l, notified = r.listen()
	r.identify(l, k3)
	r.requireNotified(notified, "a", token)
}

// An Expire of a former leader ends nothing.
func TestOutdatedExpireKeepsListeners(t *testing.T) {
	r := newReplica(t)
	k1, token := r.open("a")
	l, notified := r.listen()
	r.identify(l, k1)
	r.apply(&machine.Lead{})
	require.Equal(t, machine.Outdated, r.apply(&machine.Expire{Session: r.id, Incarnation: k1}).Code)
	r.requireNotified(notified, "a", token)
}

// A late copy of the Close of one incarnation ends nothing.
func TestLateCloseKeepsListeners(t *testing.T) {
	r := newReplica(t)
	k1, _ := r.open("a")
	closing := &machine.CloseSession{Session: r.id, Incarnation: k1}
	require.Equal(t, machine.Done, r.apply(closing).Code)
	k2, token := r.open("a")
	l, notified := r.listen()
	r.identify(l, k2)
	r.apply(closing)
	r.requireNotified(notified, "a", token)
}

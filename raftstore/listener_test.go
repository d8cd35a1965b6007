package raftstore

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// replica is a machine and its hub, without an engine: the test says what is
// applied when.
type replica struct {
	t     *testing.T
	node  *Node
	index uint64
	id    engine.SessionID
}

func newReplica(t *testing.T) *replica {
	n := newBareNode()
	n.fsm = newFSM("n", func(err error) { t.Error(err) }, n)
	return &replica{t: t, node: n, id: engine.NewSessionID()}
}

func (r *replica) apply(c machine.Command) machine.Result {
	r.index++
	r.node.fsm.Apply(&raft.Log{Index: r.index, Data: encodeEntry(r.node.fsm.position().link(), []machine.Command{c})})
	return r.node.fsm.unread[0]
}

// open opens the session, and has it hold lock as its first attempt.
func (r *replica) open(lock fencing.Resource) (incarnation uint64, token fencing.Token) {
	incarnation = r.apply(&machine.OpenSession{Session: r.id, TTL: time.Minute}).Incarnation
	return incarnation, r.acquire(incarnation, lock)
}

func (r *replica) acquire(incarnation uint64, lock fencing.Resource) fencing.Token {
	result := r.apply(&machine.Acquire{Session: r.id, Incarnation: incarnation, Request: lockRequest(1, lock)})
	require.Equal(r.t, machine.Granted, result.Code)
	return result.Token
}

func (r *replica) expire(incarnation uint64) {
	require.Equal(r.t, machine.Done, r.apply(&machine.Expire{Session: r.id, Incarnation: incarnation}).Code)
}

// listen returns a listener, and how often it was told.
func (r *replica) listen() (*listener, *int) {
	told := new(int)
	l := &listener{lost: func(engine.Nonce, error) { *told++ }}
	r.node.hub.listen(r.id, l)
	return l, told
}

// requireHeard breaks a lease, and requires that the listener is told.
func (r *replica) requireHeard(told *int, lock fencing.Resource, token fencing.Token) {
	r.t.Helper()
	before := *told
	require.Equal(r.t, machine.Done, r.apply(&machine.Break{Resource: lock, Token: token}).Code)
	require.Equal(r.t, before+1, *told, "the listener is deaf")
}

// restore replaces the state by that of another replica.
func (r *replica) restore(from *replica) {
	image, err := from.node.fsm.Snapshot()
	require.NoError(r.t, err)
	require.NoError(r.t, r.node.fsm.Restore(io.NopCloser(bytes.NewReader(image.(stateImage)))))
}

// The end of one incarnation, also while the next one is being opened, leaves
// who listens for the next one alone.
func TestTheEndOfAnIncarnationDeafensNoOther(t *testing.T) {
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
			l, told := r.listen()
			require.Equal(t, machine.Done, end(r, k1).Code)
			k2, token := r.open("a")
			r.node.identify(r.id, l, k2)
			require.Zero(t, *told, "it was another one's loss")
			r.requireHeard(told, "a", token)
			end(r, k2)
			require.Empty(t, r.node.hub.holders, "it has ended")
		})
	}
}

// A replica that lags runs the end of the earlier incarnation when the leader
// has long opened the next one. They have used the same nonce.
func TestAReplicaThatLagsTellsNothingOfAnEarlierIncarnation(t *testing.T) {
	leader, follower := newReplica(t), newReplica(t)
	follower.id = leader.id
	k1, _ := leader.open("a")
	follower.open("a")
	leader.expire(k1)
	k2, _ := leader.open("b")

	l, told := follower.listen()
	follower.node.identify(follower.id, l, k2)
	follower.expire(k1)
	require.Zero(t, *told, "it was another one's loss")
	_, token := follower.open("b")
	follower.requireHeard(told, "b", token)
}

// A replica that has not heard of the session yet keeps who listens for it,
// whether it hears of it by the log or by a snapshot, until it has ended there.
func TestAReplicaThatLagsKeepsItsListeners(t *testing.T) {
	for name, catchUp := range map[string]func(leader, follower *replica){
		"log":      func(_, follower *replica) { follower.open("a") },
		"snapshot": func(leader, follower *replica) { follower.restore(leader) },
	} {
		t.Run(name, func(t *testing.T) {
			leader, follower := newReplica(t), newReplica(t)
			follower.id = leader.id
			k1, _ := leader.open("a")
			l, told := follower.listen()
			follower.node.identify(follower.id, l, k1)
			catchUp(leader, follower)
			require.Zero(t, *told)
			require.Len(t, follower.node.hub.holders, 1)

			leader.expire(k1)
			follower.restore(leader)
			require.Equal(t, 1, *told)
			require.Empty(t, follower.node.hub.holders, "the snapshot says that it has ended")
		})
	}
}

// What is lost while the session is being found is told when it is found.
func TestNoLossFallsBeforeTheListenerIsKnown(t *testing.T) {
	r := newReplica(t)
	k1, token := r.open("a")
	l, told := r.listen()
	require.Equal(t, machine.Done, r.apply(&machine.Break{Resource: "a", Token: token}).Code)
	require.Zero(t, *told)
	r.node.identify(r.id, l, k1)
	require.Equal(t, 1, *told)
	r.expire(k1)
	require.Equal(t, 1, *told)
}

// A session that ends before its number has come back leaves no listener.
func TestAListenerThatComesTooLateDoesNotStay(t *testing.T) {
	r := newReplica(t)
	l, told := r.listen()
	k1, _ := r.open("a")
	r.expire(k1)
	r.node.identify(r.id, l, k1)
	require.Equal(t, 1, *told)
	require.Empty(t, r.node.hub.holders)

	l, told = r.listen()
	k2, _ := r.open("a")
	r.expire(k2)
	k3, token := r.open("a")
	r.node.identify(r.id, l, k2)
	require.Equal(t, 1, *told)
	require.Empty(t, r.node.hub.holders)

	l, told = r.listen() // and is told nothing more, nor takes another one's place
	r.node.identify(r.id, l, k3)
	r.requireHeard(told, "a", token)
}

// An expiry that a former leader has proposed ends nothing.
func TestAnOutdatedExpiryDeafensNobody(t *testing.T) {
	r := newReplica(t)
	k1, token := r.open("a")
	l, told := r.listen()
	r.node.identify(r.id, l, k1)
	r.apply(&machine.Lead{})
	require.Equal(t, machine.Outdated, r.apply(&machine.Expire{Session: r.id, Incarnation: k1}).Code)
	r.requireHeard(told, "a", token)
}

// A late copy of the Close of one incarnation arrives while the next one holds
// a lease, which is then broken.
func TestALateCloseDeafensNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		ctx := testContext(t)
		first := openSession(t, c.backend(), time.Minute).(*Session)
		require.NoError(t, first.Close(ctx))
		var told atomic.Int64
		config := first.config
		config.Lost = func(engine.Nonce, error) { told.Add(1) }
		second, err := c.backend().Open(ctx, config)
		require.NoError(t, err)
		grant, err := second.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		require.NoError(t, first.Close(ctx))
		require.NoError(t, c.backend().Break(ctx, "a", grant.Token))
		eventually(t, "the loss", func() bool { return told.Load() > 0 })
	})
}

// The session's time has run out, and its client opens it again just as it
// expires: after it listens, before the new one is there.
func TestASessionOpenedAsItExpiresHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		ctx := testContext(t)
		first := openSession(t, c.backend(), time.Minute).(*Session)
		var told atomic.Int64
		config := first.config
		config.Lost = func(engine.Nonce, error) { told.Add(1) }
		second, err := c.backend().begin(ctx, config, func(n *Node) (machine.SessionInfo, error) {
			_, _, err := n.propose(ctx, &machine.Expire{Session: config.ID, Incarnation: first.Incarnation(), Generation: n.leading.Load().generation})
			if err != nil {
				return machine.SessionInfo{}, err
			}
			return n.open(ctx, config)
		})
		require.NoError(t, err)
		require.NotEqual(t, first.Incarnation(), second.Incarnation())
		grant, err := second.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		require.NoError(t, c.backend().Break(ctx, "a", grant.Token))
		eventually(t, "the loss", func() bool { return told.Load() > 0 })
		require.NoError(t, second.Close(ctx))
		for _, n := range c.nodes {
			require.Empty(t, n.hub.holders)
		}
	})
}

package raftstore

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

// entryCounter counts, for each entry of the log, the leases of one user that ended in it and
// the grants to others.
type entryCounter struct {
	mu      sync.Mutex
	ended   map[uint64]int
	granted map[uint64]int
}

func (c *entryCounter) Applied(entry Entry, events []machine.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range events {
		switch {
		case e.User == "large" && e.Type != machine.EventGranted && e.Type != machine.EventQueued:
			c.ended[entry.Index]++
		case e.User != "large" && e.Type == machine.EventGranted:
			c.granted[entry.Index]++
		}
	}
}

// othersRun reports whether others have been granted locks.
func (c *entryCounter) othersRun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.granted) > 1
}

func (c *entryCounter) Restored(*machine.Machine) {}

// interleaved checks that no entry ended more than MaxEndRequests leases, and that others were
// granted locks in between.
func (c *entryCounter) interleaved(t *testing.T, leases int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	first, last, total := ^uint64(0), uint64(0), 0
	for index, n := range c.ended {
		require.LessOrEqual(t, n, machine.MaxEndRequests)
		first, last, total = min(first, index), max(last, index), total+n
	}
	require.Equal(t, leases, total)
	between := 0
	for index, n := range c.granted {
		if first < index && index < last {
			between += n
		}
	}
	require.Positive(t, between, "others are granted locks while the session ends")
}

const largeSession = 12*machine.MaxEndRequests + 1

// openLarge opens a session with many leases.
func openLarge(t *testing.T, c *cluster, ttl time.Duration, lost func(engine.Nonce, error)) *Session {
	opened, err := c.backend().Open(testContext(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl,
		User: "large", Lost: lost, Clock: engine.MonotonicClock()})
	require.NoError(t, err)
	s := opened.(*Session)
	var callers []reply
	for i := range largeSession {
		callers = append(callers, make(reply, 1))
		require.NoError(t, s.Begin(testContext(t), engine.Request{Nonce: engine.Nonce(i + 1),
			Resources: []fencing.Resource{largeLock(i)}}, callers[i]))
	}
	s.backend.Flush()
	for _, w := range callers {
		require.NoError(t, (<-w).err)
	}
	return s
}

func largeLock(i int) fencing.Resource { return fencing.Resource(fmt.Sprintf("large/%05d", i)) }

// acquireUntil acquires and releases a lock until done is closed.
func acquireUntil(t *testing.T, c *cluster, done <-chan struct{}) {
	s := openSession(t, c.backend(), time.Hour)
	for nonce := engine.Nonce(1); ; nonce++ {
		select {
		case <-done:
			return
		default:
		}
		if grab(t, s, nonce, "small", true) {
			_ = s.Release(testContext(t), engine.Held{Nonce: nonce})
		}
	}
}

func grab(t *testing.T, s engine.Session, nonce engine.Nonce, name fencing.Resource, wait bool) bool {
	_, err := s.Acquire(testContext(t), engine.Request{Nonce: nonce, Resources: []fencing.Resource{name}, Wait: wait})
	return err == nil
}

// The end of a session with many leases does not delay others: its leases end in several
// entries, and others are granted locks in between. This holds for an expiry and for a close,
// which returns when the last lease has ended.
func TestLargeSessionEndsInPieces(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprintf("closes=%v", closes), func(t *testing.T) {
			counter := &entryCounter{ended: map[uint64]int{}, granted: map[uint64]int{}}
			c := startMemory(t, 1, func(c *Config) { c.Observer = counter })
			lost := make(chan engine.Nonce, largeSession)
			s := openLarge(t, c, time.Hour, func(nonce engine.Nonce, _ error) { lost <- nonce })
			done := make(chan struct{})
			var others sync.WaitGroup
			others.Go(func() { acquireUntil(t, c, done) })
			other := openSession(t, c.backend(), time.Hour)
			require.Eventually(t, counter.othersRun, time.Minute, time.Millisecond, "others acquire locks")
			if closes {
				require.NoError(t, s.Close(testContext(t)))
				require.True(t, grab(t, other, 1, largeLock(largeSession-1), false), "the last lease has ended")
			} else {
				n := c.leader()
				_, _, err := n.propose(testContext(t), &machine.Expire{Session: s.config.ID, Incarnation: s.number,
					Generation: n.leading.Load().generation})
				require.NoError(t, err)
				require.True(t, grab(t, other, 1, largeLock(largeSession-1), true), "the last lease ends")
				for range largeSession {
					<-lost
				}
			}
			close(done)
			others.Wait()
			counter.interleaved(t, largeSession)
			require.True(t, c.leader().hub.Idle())
		})
	}
}

// A migration of many held locks that does not wait for their holders ends the leases in several
// entries, too.
func TestLargeMigrationEndsInPieces(t *testing.T) {
	counter := &entryCounter{ended: map[uint64]int{}, granted: map[uint64]int{}}
	c := startMemory(t, 1, func(c *Config) { c.Observer = counter })
	lost := make(chan error, largeSession)
	openLarge(t, c, time.Hour, func(_ engine.Nonce, err error) { lost <- err })
	done := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() { acquireUntil(t, c, done) })
	require.Eventually(t, counter.othersRun, time.Minute, time.Millisecond, "others acquire locks")
	version, err := c.leader().SetPolicy(testContext(t), engine.Policy{Prefix: "large/", Mode: engine.Efficiency}, 0, true)
	require.NoError(t, err)
	for range largeSession {
		require.ErrorIs(t, firstOf(t, lost, "the loss of each lease"), engine.ErrTaken)
	}
	require.NoError(t, c.leader().Change(testContext(t), &machine.FinishMigration{Prefix: "large/", Version: version}))
	close(done)
	others.Wait()
	counter.interleaved(t, largeSession)
}

// A leader that fails after it has ended a session leaves leases. The next leader ends them.
func TestNextLeaderEndsTheLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		old := c.leader()
		s := openLarge(t, c, time.Hour, nil)
		end := replica.EncodeEntry(replica.Chain{}, []machine.Command{&machine.CloseSession{Session: s.config.ID,
			Incarnation: s.number}, &machine.EndRequests{Max: 1}})
		_ = old.raft.Apply(end, time.Second).Error() // no caller awaits it, nor does the leader of the entry go on
		c.isolate(old)
		var next *Node
		eventually(t, "another leader", func() bool {
			for _, n := range c.nodes {
				if n != old && n.Leads() {
					next = n
				}
			}
			return next != nil
		})
		eventually(t, "the end of all leases", func() bool { return next.Status().Counts.Holders == 0 })
		c.heal()
		c.agree()
	})
}

// A new leader takes sessions over in pieces, while it serves. A session that it has not taken
// over yet can be renewed, and all of them expire.
func TestNewLeaderAdoptsSessionsInPieces(t *testing.T) {
	n := newBareNode()
	n.retire()
	const sessions = 2*adoptPiece + 1
	ids, incarnations := make([]engine.SessionID, sessions), make([]uint64, sessions)
	n.fsm.Read(func(m *machine.Machine) {
		for i := range sessions {
			ids[i] = engine.NewSessionID()
			opened, _ := m.Apply(&machine.OpenSession{Session: ids[i], TTL: time.Hour})
			incarnations[i] = opened.Incarnation
		}
	})
	var term *leadership
	n.fsm.Read(func(m *machine.Machine) {
		term = n.newLeadership(m, n.config.Clock.Now())
		require.True(t, term.adopt(m))
		require.Equal(t, adoptPiece, term.lessor.Sessions(), "one piece under the lock of the machine")
	})
	n.leading.Store(term)
	require.NoError(t, n.renew(testContext(t), ids[0], incarnations[0], 0), "the last one to be adopted")
	require.Equal(t, adoptPiece+1, term.lessor.Sessions())
	n.fsm.Read(func(m *machine.Machine) {
		m.Apply(&machine.CloseSession{Session: ids[1], Incarnation: incarnations[1]})
	})
	require.ErrorIs(t, n.renew(testContext(t), ids[1], incarnations[1], 0), engine.ErrExpired)
	n.adoptSessions(term)
	require.Equal(t, sessions-1, term.lessor.Sessions())
	require.ErrorIs(t, n.renew(testContext(t), ids[1], incarnations[1], 0), engine.ErrExpired)
	require.True(t, n.retire())
}

// A session that is opened while a new leader still takes sessions over has its full TTL from then on, even if the
// leadership is older than that. So does one that is opened again.
func TestOpenedDuringALongAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBareNode()
		n.retire()
		index := uint64(0)
		open := func(id engine.SessionID) {
			index++
			command := &machine.OpenSession{Session: id, TTL: 10 * time.Second}
			n.fsm.Apply(&raft.Log{Index: index, Data: replica.EncodeEntry(n.fsm.Chain(), []machine.Command{command})})
		}
		existing := engine.NewSessionID()
		open(existing)
		n.fsm.Read(func(m *machine.Machine) { n.leading.Store(n.newLeadership(m, n.config.Clock.Now())) })
		pass(time.Minute)
		open(engine.NewSessionID())
		open(existing)
		expired, wait := n.leading.Load().due()
		require.Empty(t, expired)
		require.Equal(t, 10*time.Second, wait)
		n.adoptSessions(n.leading.Load())
		expired, _ = n.leading.Load().due()
		require.Empty(t, expired)
		require.True(t, n.retire())
	})
}

// A new leader starts lock-delays in pieces, too: the end of one session may begin one for each of its locks.
func TestNewLeaderAdoptsDelaysInPieces(t *testing.T) {
	n := newBareNode()
	n.retire()
	const delays = 2*adoptPiece + 1
	id := engine.NewSessionID()
	n.fsm.Read(func(m *machine.Machine) {
		m.Apply(&machine.SetPolicy{Policy: engine.Policy{Mode: engine.Correctness, LockDelay: time.Minute}})
		opened, _ := m.Apply(&machine.OpenSession{Session: id, TTL: time.Hour})
		for i := range delays {
			m.Apply(&machine.Acquire{Session: id, Incarnation: opened.Incarnation, Request: engine.Request{
				Nonce: engine.Nonce(i + 1), Resources: []fencing.Resource{fencing.Resource(strconv.Itoa(i))}}})
		}
		m.Apply(&machine.Expire{Session: id, Incarnation: opened.Incarnation, Generation: m.Generation()})
		m.Apply(&machine.EndRequests{Max: delays})
	})
	var term *leadership
	n.fsm.Read(func(m *machine.Machine) {
		term = n.newLeadership(m, n.config.Clock.Now())
		require.Zero(t, term.lessor.Pending())
		require.True(t, term.adopt(m))
		require.Equal(t, adoptPiece, term.lessor.Pending(), "one piece under the lock of the machine")
	})
	n.leading.Store(term)
	n.adoptSessions(term)
	require.Equal(t, delays, term.lessor.Pending())
	ended := map[fencing.Resource]bool{}
	for len(ended) < delays {
		commands, _ := term.lessor.Due(n.config.Clock.Now().Add(2 * time.Minute))
		require.NotEmpty(t, commands)
		for _, c := range commands {
			ended[c.(*machine.EndDelay).Resource] = true
		}
	}
	require.True(t, n.retire())
}

// A renewal counts from its arrival. A leader without a fresh proof of leadership commits an
// entry first, and the session does not expire while the renewal waits for it.
func TestExpiryDoesNotOvertakeARenewal(t *testing.T) {
	for _, how := range []string{"renew", "attach"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startMemory(t, 1)
				s := openSession(t, c.backend(), 10*time.Second).(*Session)
				n := c.leader()
				pass(9 * time.Second)              // the proof is stale
				n.committer.proposal <- struct{}{} // no entry commits
				renewed := make(chan error, 1)
				go func() {
					if how == "renew" {
						_, err := s.Renew(testContext(t))
						renewed <- err
						return
					}
					_, err := c.backend().Attach(testContext(t), s.config)
					renewed <- err
				}()
				pass(5 * time.Second)
				<-n.committer.proposal
				require.NoError(t, <-renewed)
				pass(4 * time.Second)
				_, err := s.Renew(testContext(t))
				require.NoError(t, err, "10 s from the arrival")
			})
		})
	}
}

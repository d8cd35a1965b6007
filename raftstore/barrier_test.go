package raftstore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/lessor"
	"github.com/leased-project/leased/raftstore/transport"
)

// lateAnswers is a Transport that can delay the answers of followers, like the socket of a
// paused leader.
type lateAnswers struct {
	transport.Transport
	mu   sync.Mutex
	held chan struct{} // nil while answers pass
}

func (l *lateAnswers) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = make(chan struct{})
}

func (l *lateAnswers) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		close(l.held)
		l.held = nil
	}
}

// AppendEntries also carries heartbeats.
func (l *lateAnswers) AppendEntries(id raft.ServerID, to raft.ServerAddress, request *raft.AppendEntriesRequest,
	answer *raft.AppendEntriesResponse) error {
	err := l.Transport.AppendEntries(id, to, request, answer)
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held != nil {
		<-held
	}
	return err
}

// An answer to a heartbeat that was sent before a read began does not prove leadership now.
// VerifyLeader of the Raft library accepts it as a proof.
func TestReadsDoNotTrustEarlierAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transports := map[string]*lateAnswers{}
		c := startMemory(t, 3, func(config *Config) {
			transports[config.ID] = &lateAnswers{Transport: config.Transport}
			config.Transport = transports[config.ID]
		})
		old := c.leader()
		openSession(t, c.backend(), time.Minute)
		c.agree() // so that either of the others can be elected
		transports[old.ID()].hold()
		defer transports[old.ID()].release()
		pass(DefaultHeartbeatTimeout / 4) // a heartbeat to each follower: answered, and the answer is delayed
		c.isolate(old)

		// The others start an election at once, as in a transfer of leadership.
		var next, third *Node
		for _, n := range c.nodes {
			if n != old {
				next, third = n, next
			}
		}
		require.NoError(t, transports[third.ID()].TimeoutNow(raft.ServerID(next.ID()), raft.ServerAddress(next.ID()),
			&raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(old.ID()),
				Addr: []byte(old.ID())}},
			&raft.TimeoutNowResponse{}))
		eventually(t, "the next leader", next.Leads)
		others, err := NewBackend(next)
		require.NoError(t, err)
		grant, err := openSession(t, others, time.Minute).Acquire(testContext(t), lockRequest(1, "a"))
		require.NoError(t, err)

		require.True(t, old.Leads(), "the old leader has not noticed")
		var status engine.Status
		read := make(chan error, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		go func() {
			var err error
			status, err = old.Inspect(ctx, "a", Linearizable)
			read <- err
		}()
		synctest.Wait()
		transports[old.ID()].release()
		if err := <-read; err == nil {
			require.Len(t, status.Holders, 1, "token %d was granted and acknowledged before the read began", grant.Token)
		}
	})
}

// A read or a renewal of a leader that is deposed has changed nothing. Its caller can ask the next one.
func TestReadOfADeposedLeaderIsNotUncertain(t *testing.T) {
	for name, call := range map[string]func(old *Node, s *Session) error{
		"read": func(old *Node, _ *Session) error {
			_, err := old.Inspect(context.Background(), "a", Linearizable)
			return err
		},
		"renewal": func(_ *Node, s *Session) error { return s.Extend(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startMemory(t, 3)
				old := c.leader()
				backend, err := NewBackend(old)
				require.NoError(t, err)
				s := openSession(t, backend, time.Minute).(*Session)
				pass(2 * lessor.ProofLife) // a renewal needs a new proof
				c.isolate(old)
				ended := make(chan error, 1)
				go func() { ended <- call(old, s) }()
				err = firstOf(t, ended, "the leader steps down")
				require.ErrorIs(t, err, engine.ErrUnavailable)
				require.NotErrorIs(t, err, engine.ErrUncertain)
			})
		})
	}
}

package raftstore

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/transport"
)

// hanging is a transport to members that may hang: connections to a process that is stopped stay open, and
// requests on them get no answer.
type hanging struct {
	transport.Transport
	entries, handover func(to raft.ServerID) bool
}

// answerLimit is how long the transport waits for an answer, as over TCP.
const answerLimit = 10 * time.Second

func hang() error {
	<-time.After(answerLimit)
	return errors.New("no answer")
}

func (h *hanging) AppendEntries(id raft.ServerID, target raft.ServerAddress, request *raft.AppendEntriesRequest,
	response *raft.AppendEntriesResponse) error {
	if h.entries(id) {
		return hang()
	}
	return h.Transport.AppendEntries(id, target, request, response)
}

func (h *hanging) TimeoutNow(id raft.ServerID, target raft.ServerAddress, request *raft.TimeoutNowRequest,
	response *raft.TimeoutNowResponse) error {
	if h.handover(id) {
		return hang()
	}
	return h.Transport.TimeoutNow(id, target, request, response)
}

// A transfer to a member that hangs fails within two seconds, and delays no caller by more than three: also if the
// member begins to hang during the transfer.
func TestTransferToAHungMember(t *testing.T) {
	for _, test := range []struct {
		name   string
		during bool
		outage time.Duration // the longest time in which the leader does not serve
	}{{"before", false, 0}, {"during", true, 3 * time.Second}} {
		t.Run("it hangs "+test.name+" the transfer", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hung atomic.Value
				hung.Store(raft.ServerID(""))
				c := startMemory(t, 3, func(c *Config) {
					c.Transport = &hanging{c.Transport,
						func(to raft.ServerID) bool { return to == hung.Load() && !test.during },
						func(to raft.ServerID) bool { return to == hung.Load() }}
				})
				leader := c.leader()
				s := retrying{openSession(t, c.backend(), time.Hour)}
				pass(time.Second)
				at := slices.IndexFunc(c.nodes, func(n *Node) bool { return n != leader })
				target := c.nodes[at].ID()
				hung.Store(raft.ServerID(target))

				transferred := make(chan error, 1)
				began := time.Now()
				go func() {
					err := leader.Transfer(testContext(t), target)
					if took := time.Since(began); took > 2*time.Second {
						err = fmt.Errorf("the transfer took %v: %w", took, err)
					}
					transferred <- err
				}()
				var slowest time.Duration
				for nonce := engine.Nonce(1); time.Since(began) < 15*time.Second; nonce++ {
					from := time.Now()
					_, err := s.Acquire(testContext(t), lockRequest(nonce, "a"))
					require.NoError(t, err)
					require.NoError(t, s.Release(testContext(t), nonce))
					slowest = max(slowest, time.Since(from))
					pass(10 * time.Millisecond)
				}
				err := <-transferred
				require.Error(t, err)
				require.NotContains(t, err.Error(), "the transfer took")
				require.LessOrEqual(t, slowest, test.outage+100*time.Millisecond)
				require.True(t, leader.Leads(), "it serves on")
				if !test.during {
					require.ErrorIs(t, err, engine.ErrUnavailable)
					require.NoError(t, leader.Transfer(testContext(t), ""), "to the member that answers")
					require.NotEqual(t, target, c.leader().ID())
				}
				hung.Store(raft.ServerID(""))
			})
		})
	}
}

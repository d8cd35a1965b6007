package raftstore

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/lessor"
	"github.com/leased-project/leased/raftstore/replica"
)

// A session whose Expire was proposed must not be renewed: its client would use a lease
// that has ended.
func TestExpiringSessionIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := map[string]*disk{}
		c := startMemory(t, 1, disks(under, make(chan error, 1)), func(c *Config) { c.StoreDeadline = time.Hour })
		leader := c.leader()
		s := openSession(t, c.backend(), 10*time.Second)
		pass(10*time.Second - lessor.ProofLife/4)
		openSession(t, c.backend(), time.Minute) // a proof of leadership
		stuck := make(chan struct{})
		under[leader.ID()].stuck.Store(&stuck)
		defer close(stuck)
		pass(lessor.ProofLife / 2)
		_, err := s.Renew(testContext(t))
		require.ErrorIs(t, err, engine.ErrExpired)
	})
}

// ballots is a stable store whose writes can fail.
type ballots struct {
	raft.StableStore
	fault atomic.Pointer[error]
}

func (b *ballots) Set(key, value []byte) error {
	if err := b.fault.Load(); err != nil {
		return *err
	}
	return b.StableStore.Set(key, value)
}

func (b *ballots) SetUint64(key []byte, value uint64) error {
	if err := b.fault.Load(); err != nil {
		return *err
	}
	return b.StableStore.SetUint64(key, value)
}

// A node that could not write a vote could vote twice.
func TestFailedVoteEndsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := map[string]*ballots{}
		ended := make(chan error, 3)
		c := startMemory(t, 3, func(c *Config) {
			b := &ballots{StableStore: c.Storage.Stable}
			under[c.ID], c.Storage.Stable = b, b
			c.Fatal = func(err error) { ended <- err }
		})
		leader := c.leader()
		broken := errors.New("input/output error")
		for _, n := range c.nodes {
			if n != leader {
				under[n.ID()].fault.Store(&broken)
			}
		}
		c.isolate(leader) // the others must vote
		require.ErrorIs(t, firstOf(t, ended, "the node that cannot write its vote stops"), broken)
	})
}

// A replica compares its chain hash with the one that the leader sends.
func TestEntriesCarryTheHashOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 3)
		c := startMemory(t, 3, func(c *Config) { c.Fatal = func(err error) { ended <- err } })
		leader := c.leader()
		openSession(t, c.backend(), time.Minute)
		c.agree()
		for _, n := range c.nodes {
			if n != leader {
				diverge(n)
				break
			}
		}
		openSession(t, c.backend(), time.Minute)
		var diverged *replica.DivergenceError
		require.ErrorAs(t, firstOf(t, ended, "the diverged replica stops"), &diverged)
	})
}

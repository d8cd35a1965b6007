package raftstore

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// catchUp prevents a node that has joined from acting on an outdated configuration.
//
// A joining node replays the log of its cluster and acts on the configuration at its
// position. A node that bootstrapped the cluster, or was its only member after a
// recovery, and was then removed and emptied, replays an entry in which it is the only
// voter. If it were disconnected at that moment, it would elect itself. So before it
// answers any peer, a joining node writes the index at which it was admitted to disk.
// Until it has applied that entry it does not vote, not even for itself, does not serve,
// and starts no election.
type catchUp struct {
	node  *Node
	mu    sync.Mutex    // held while until changes
	until atomic.Uint64 // 0 if the node has caught up
}

// keyCatchUp is the key of the index in the stable store, beside term and vote.
var keyCatchUp = []byte("CatchUp")

// noElectionTimeout prevents a node that may not vote from starting elections: each one would
// raise its term and depose the leader that it learns from.
const noElectionTimeout = 365 * 24 * time.Hour

// load reads the index from disk.
func (c *catchUp) load() error {
	until, err := c.node.storage.uint64(keyCatchUp)
	if err != nil {
		return fmt.Errorf("read the index to catch up with: %w", err)
	}
	c.until.Store(until)
	return nil
}

// pending reports whether the node has not caught up.
func (c *catchUp) pending() bool { return c.until.Load() > 0 }

// begin records the index at which the node was admitted.
func (c *catchUp) begin(index uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.note(index); err != nil {
		return err
	}
	return c.timeouts(noElectionTimeout)
}

// finish ends the catching up when the node has applied the entry that admitted it. From
// then on it is an ordinary follower.
func (c *catchUp) finish() error {
	if !c.pending() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	until := c.until.Load()
	if until == 0 || c.node.raft.AppliedIndex() < until {
		return nil
	}
	if err := c.note(0); err != nil {
		return err
	}
	return c.timeouts(c.node.config.HeartbeatTimeout)
}

// note writes the index. Like every failed write, a failure ends the node.
func (c *catchUp) note(until uint64) error {
	if until > 0 {
		c.until.Store(math.MaxUint64) // until the state on disk is known
	}
	if err := c.node.storage.Stable.SetUint64(keyCatchUp, until); err != nil {
		err = fmt.Errorf("write the index to catch up with: %w; the node stops and must restart from disk", err)
		c.node.die(err)
		return err
	}
	c.until.Store(until)
	return nil
}

// timeouts changes the timeouts of the running Raft library.
func (c *catchUp) timeouts(d time.Duration) error {
	now := c.node.raft.ReloadableConfig()
	now.HeartbeatTimeout, now.ElectionTimeout = d, d
	if err := c.node.raft.ReloadConfig(now); err != nil {
		return fmt.Errorf("change timeouts: %w", err)
	}
	return nil
}

var errNoVote = errors.New("a node that has not caught up does not vote")

// refuseVote returns why the node must not vote, nil if it may.
func (c *catchUp) refuseVote() error {
	if c.pending() {
		return errNoVote
	}
	return nil
}

// CatchingUp reports whether the node has joined but has not applied the entry that
// admitted it. Its configuration is outdated until then. A node that was stopped while
// catching up must join again.
func (n *Node) CatchingUp() bool { return n.catchUp.pending() }

package raftstore

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// catchUp keeps a node that has joined from acting on what is past.
//
// A joiner replays the history of its cluster, and believes the configuration
// that it has come to. One that began the cluster, or was its only member after
// a recovery, and was then removed and emptied, comes by an entry that says that
// it is the only voter: left alone at that moment it would elect itself. So
// before it hears anybody a joiner notes on disk the index at which it was let
// in. Until it has applied that entry it casts no vote, not even for itself,
// does not serve, and does not stand for election.
type catchUp struct {
	node  *Node
	mu    sync.Mutex    // held while until changes
	until atomic.Uint64 // 0: it has caught up
}

// keyCatchUp is where the stable store has the index, beside term and vote.
var keyCatchUp = []byte("CatchUp")

// calmTimeout keeps a node that may not vote from standing for election: each
// try would raise its term, and depose the leader that it learns from.
const calmTimeout = 365 * 24 * time.Hour

// load reads what the folder says.
func (c *catchUp) load() error {
	until, err := c.node.storage.Stable.GetUint64(keyCatchUp)
	if err != nil && err.Error() != "not found" { // the engine's contract for a StableStore
		return fmt.Errorf("read what to catch up with: %w", err)
	}
	c.until.Store(until)
	return nil
}

// pending: the node has not caught up.
func (c *catchUp) pending() bool { return c.until.Load() > 0 }

// begin notes that the node was let in at an index.
func (c *catchUp) begin(index uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.note(index); err != nil {
		return err
	}
	return c.timeouts(calmTimeout)
}

// finish ends it when the node has applied the entry that let it in: from there
// on it knows the members as well as any follower.
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

// note writes the index. A write that fails ends the node, as all do.
func (c *catchUp) note(until uint64) error {
	if until > 0 {
		c.until.Store(math.MaxUint64) // until it is known what is on disk
	}
	if err := c.node.storage.Stable.SetUint64(keyCatchUp, until); err != nil {
		err = fmt.Errorf("write what to catch up with: %w; the node ends and starts again from what is on disk", err)
		c.node.die(err)
		return err
	}
	c.until.Store(until)
	return nil
}

// timeouts changes those of the running engine.
func (c *catchUp) timeouts(d time.Duration) error {
	now := c.node.raft.ReloadableConfig()
	now.HeartbeatTimeout, now.ElectionTimeout = d, d
	if err := c.node.raft.ReloadConfig(now); err != nil {
		return fmt.Errorf("change timeouts: %w", err)
	}
	return nil
}

// ballot is the store of votes of a node that has none before it has caught up.
// The engine votes, for others and for itself, only when the vote is written.
type ballot struct {
	raft.StableStore
	catchUp *catchUp
}

var errNoVote = errors.New("a node that has not caught up does not vote")

// SetUint64 refuses the term of a vote.
func (b ballot) SetUint64(key []byte, value uint64) error {
	if string(key) == "LastVoteTerm" && b.catchUp.pending() {
		return errNoVote
	}
	return b.StableStore.SetUint64(key, value)
}

// Set refuses the candidate of a vote.
func (b ballot) Set(key, value []byte) error {
	if string(key) == "LastVoteCand" && b.catchUp.pending() {
		return errNoVote
	}
	return b.StableStore.Set(key, value)
}

// CatchingUp reports whether the node has joined, and has not yet seen the entry
// that let it in. What it knows of the members is then of the past. If it was
// stopped meanwhile it joins again.
func (n *Node) CatchingUp() bool { return n.catchUp.pending() }

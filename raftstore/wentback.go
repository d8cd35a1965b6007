package raftstore

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/replica"
	"github.com/leased-project/leased/raftstore/transport"
)

// A voter whose data folder went back in time, such as with a restored machine image, has
// forgotten entries that it acknowledged, and perhaps votes. Its peers remember what it
// acknowledged (transport.Memory) and refuse it. It stops when it learns of that, and does
// not start again with this folder.

// keyWentBack marks a data folder in the stable store: its member must not start.
var keyWentBack = []byte("WentBack")

// keyTerm is the key under which the Raft library stores its term.
var keyTerm = []byte("CurrentTerm")

// keyJoined is the key of the index at which the node joined with an empty data folder, in
// the stable store. It is absent on a node that bootstrapped.
var keyJoined = []byte("Joined")

// hasVote reports whether a member has a vote in the newest configuration.
func (n *Node) hasVote(id raft.ServerID) bool {
	select {
	case <-n.started:
	default:
		return true // there are no records yet
	}
	_, voter := n.voter(string(id))
	return voter
}

// refuse reports a voter that has gone back in time.
func (n *Node) refuse(id raft.ServerID, acknowledged, reported uint64) {
	n.logger.Error("refused a member: its data folder has gone back in time, so it has forgotten entries that it "+
		"acknowledged, and perhaps votes",
		"member", id, "acknowledged", acknowledged, "has", reported,
		"hint", fmt.Sprintf("run `leased cluster remove %s`, empty its data folder and let it join", id))
}

// wentBack stops this node, for good, because a peer remembers entries that the node has
// acknowledged and no longer has. A peer that missed the removal and the return of this node
// may still refuse its former data folder. That folder had no entry after the one at which the
// node joined, so such a refusal has no consequences.
func (n *Node) wentBack(by raft.ServerID, lost uint64) {
	joined, err := n.storage.uint64(keyJoined)
	if err == nil && lost < joined {
		if !n.formerRefusal.Swap(true) {
			n.logger.Warn("a peer refuses this node because of its former data folder; restart that member", "member", by,
				"lost", lost, "joined", joined)
		}
		return
	}
	err = errWentBack(fmt.Sprintf("member %s remembers entries that it has acknowledged and no longer has", by))
	if failed := n.storage.Stable.SetUint64(keyWentBack, 1); failed != nil {
		err = fmt.Errorf("%w; mark the folder: %w", err, failed)
	}
	n.die(err)
}

// noteJoined writes the index at which this node joins with an empty data folder. Like every
// failed write, a failure ends the node.
func (n *Node) noteJoined(index uint64, hasState bool) error {
	if hasState {
		return nil
	}
	err := n.storage.Stable.SetUint64(keyJoined, index)
	if err != nil {
		err = fmt.Errorf("write the index at which the node joined: %w; the node stops and must restart from disk", err)
		n.die(err)
	}
	return err
}

// checkWentBack refuses a marked data folder.
func (s *Storage) checkWentBack() error {
	mark, err := s.uint64(keyWentBack)
	if err != nil {
		return fmt.Errorf("read the mark of a refused member: %w", err)
	}
	if mark > 0 {
		return errWentBack("its peers have refused this member")
	}
	return nil
}

// uint64 reads a number from the stable store. It is 0 if there is none.
func (s *Storage) uint64(key []byte) (uint64, error) {
	value, err := s.Stable.GetUint64(key)
	if err != nil && err.Error() != "not found" { // the contract of raft.StableStore
		return 0, err
	}
	return value, nil
}

func errWentBack(why string) error {
	return fmt.Errorf("%w: %w: %s; remove the member from the cluster, empty its data folder and let it join",
		ErrStateLost, transport.ErrWentBack, why)
}

// configuredFSM tells the memory of committed configurations and of snapshots: a member that
// was removed may join again with an empty folder.
type configuredFSM struct {
	*replica.FSM
	memory *transport.Memory
}

var _ raft.ConfigurationStore = configuredFSM{}

// StoreConfiguration is called with each committed configuration.
func (f configuredFSM) StoreConfiguration(_ uint64, c raft.Configuration) { f.memory.Configured(c) }

// Restore is called with each snapshot, which takes the place of entries.
func (f configuredFSM) Restore(snapshot io.ReadCloser) error {
	f.memory.Restored()
	return f.FSM.Restore(snapshot)
}

package raftstore

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

// recoveredTerms is the step by which a recovery raises the term. It exceeds what the lost
// members can have advanced the term without this one.
const recoveredTerms = 1 << 20

// Recover makes the node in this data folder, which must not run, the only member of its
// cluster. Use it when a majority is lost for good. Entries that only the other nodes had are
// lost, including acknowledged grants. So all later tokens are larger by at least
// fencing.FloorStep than any in the log, and all sessions end, because their locks may have
// other holders. No lock in efficiency mode is granted until the log is reconciled with the
// Redis nodes. The other nodes must never run again with their old data folders: empty them
// and let them join. Recover returns the new floor.
func Recover(config Config) (floor fencing.Token, err error) {
	config = config.filled()
	if err := config.validate(); err != nil {
		return 0, err
	}
	n := newNode(config)
	if err := n.openStorage(); err != nil {
		return 0, err
	}
	defer n.storage.Close()
	if err := n.openTransport(); err != nil {
		return 0, err
	}
	defer n.transport.Close()
	if err := completeInstall(n.storage); err != nil {
		return 0, fmt.Errorf("recover: %w", err)
	}
	if err := n.storage.appendFloor(machine.VersionAt(config.Clock.Now().Time().Unix())); err != nil {
		return 0, fmt.Errorf("recover: %w", err)
	}
	f := replica.New(config.ID, func(e error) { err = e }, follower{n})
	members := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(config.ID), Address: n.transport.LocalAddr()}}}
	done := make(chan error, 1)
	go func() { // a failure to apply an entry ends this goroutine
		defer close(done)
		done <- raft.RecoverCluster(config.engine(nil), f, n.storage.Log, n.storage.Stable, n.storage.Snapshots, n.transport,
			members)
	}()
	if failed := <-done; failed != nil {
		return 0, fmt.Errorf("recover: %w", failed)
	}
	if err != nil {
		return 0, fmt.Errorf("recover: %w", err)
	}
	f.Read(func(m *machine.Machine) { floor = m.LastToken() })
	config.Logger.Warn("recovered as the only member; all sessions have ended, and tokens continue above the floor",
		"floor", floor)
	return floor, nil
}

// appendFloor appends the commands that must follow a rollback to the log, in a new term. Versions
// continue above version. The commands must be a log entry: if they were only in the state, the log
// of a returning lost member would match the log of this node, and it would never receive the state.
func (s *Storage) appendFloor(version uint64) error {
	if until, err := s.uint64(keyCatchUp); err == nil && until > 0 {
		return fmt.Errorf("%w: this member never caught up with its cluster; recover another one, or create a new "+
			"cluster and restore a snapshot", ErrStateLost)
	}
	last, err := s.lastEntry()
	if err != nil {
		return err
	}
	term, err := s.uint64(keyTerm)
	if err != nil {
		return fmt.Errorf("read term: %w", err)
	}
	term = max(term, last.Term) + recoveredTerms
	raise := replica.EncodeEntry(replica.Chain{}, []machine.Command{&machine.RaiseFloor{By: fencing.FloorStep},
		&machine.EndSessions{}, &machine.MarkRestored{Version: version}})
	if err := s.Log.StoreLog(&raft.Log{Index: last.Index + 1, Term: term, Type: raft.LogCommand,
		Data: raise}); err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	if err := s.Stable.SetUint64(keyTerm, term); err != nil {
		return fmt.Errorf("write term: %w", err)
	}
	if err := s.Stable.SetUint64(keyWentBack, 0); err != nil {
		return fmt.Errorf("write the mark of a refused member: %w", err)
	}
	return nil
}

// lastEntry returns the last entry of the log, or the end of the newest snapshot.
func (s *Storage) lastEntry() (last raft.Log, err error) {
	index, err := s.Log.LastIndex()
	if err != nil {
		return last, fmt.Errorf("read log: %w", err)
	}
	if index > 0 {
		if err := s.Log.GetLog(index, &last); err != nil {
			return last, fmt.Errorf("read log: %w", err)
		}
	}
	snapshots, err := s.Snapshots.List()
	if err != nil {
		return last, fmt.Errorf("read snapshots: %w", err)
	}
	if len(snapshots) > 0 && snapshots[0].Index > last.Index {
		last.Index, last.Term = snapshots[0].Index, snapshots[0].Term
	}
	if last.Index == 0 {
		return last, fmt.Errorf("%w: the data folder is empty, there is nothing to recover", ErrConfig)
	}
	return last, nil
}

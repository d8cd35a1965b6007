package raftstore

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/raftstore/machine"
)

// Recover makes the node in this folder, which must not run, the only member of
// its cluster: what remains when a majority is lost for good. Entries that the
// others had and this one has not are gone, acknowledged grants among them, so
// all later tokens are larger by at least fencing.FloorStep than any in its
// log. The other nodes must never run again with their old folders: empty them
// and join. It returns the new floor.
func Recover(config Config) (floor fencing.Token, err error) {
	config = config.filled()
	if err := config.validate(); err != nil {
		return 0, err
	}
	n := &Node{config: config, logger: config.Logger}
	if err := n.openStorage(); err != nil {
		return 0, err
	}
	defer n.storage.Close()
	if err := n.openTransport(); err != nil {
		return 0, err
	}
	defer n.transport.Close()
	f := &recoveryFSM{fsm: newFSM(config.ID, func(e error) { err = e }, deaf{})}
	members := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(config.ID), Address: n.transport.LocalAddr()}}}
	done := make(chan error, 1)
	go func() { // an entry that cannot be applied ends this goroutine
		defer close(done)
		done <- raft.RecoverCluster(config.engine(nil), f, n.storage.Log, n.storage.Stable, n.storage.Snapshots, n.transport, members)
	}()
	if failed := <-done; failed != nil {
		return 0, fmt.Errorf("recover: %w", failed)
	}
	if err != nil {
		return 0, fmt.Errorf("recover: %w", err)
	}
	config.Logger.Warn("recovered as the only member; tokens go on above the floor", "floor", f.floor)
	return f.floor, nil
}

// recoveryFSM replays a log, and raises the token floor in what it leaves.
type recoveryFSM struct {
	*fsm
	floor fencing.Token
}

// Snapshot is the state with the floor raised.
func (f *recoveryFSM) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	state := encodeState(f.chain, f.machine)
	f.mu.Unlock()
	raised, floor, err := raiseFloor(state, fencing.None)
	if err != nil {
		return nil, err
	}
	f.floor = floor
	return stateImage(raised), nil
}

// deaf hears nothing.
type deaf struct{}

func (deaf) applied(machine.Command, machine.Result, []machine.Event) []func() { return nil }
func (deaf) awaits([]byte) bool                                                { return false }
func (deaf) answered([]byte, []machine.Result)                                 {}
func (deaf) restored(_, _ *machine.Machine) []func()                           { return nil }

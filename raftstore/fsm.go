package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/machine"
)

// fsm runs the machine on the entries that the engine has committed, and tells
// the observer what happened.
type fsm struct {
	node     string
	fatal    func(error)
	observer observer

	unread []machine.Result // of an entry whose results nobody waits for

	mu      sync.Mutex
	machine *machine.Machine
	chain   Chain
}

// observer is told of every command that was applied, in order, with fsm.mu
// held: it must not block. What it returns is run once the lock is free.
type observer interface {
	applied(m *machine.Machine, c machine.Command, result machine.Result, events []machine.Event) (later []func())
	// awaits says whether somebody on this node waits for what comes of an
	// entry: its proposer.
	awaits(data []byte) bool
	// answered is told of every entry, without fsm.mu. The results are valid
	// until it returns.
	answered(data []byte, results []machine.Result)
	// restored is told that the machine was replaced, with fsm.mu held.
	restored(old, now *machine.Machine) (later []func())
	// saw and sawRestored are for Config.Observer, with fsm.mu held.
	saw(index uint64, events []machine.Event)
	sawRestored(now *machine.Machine)
}

var _ raft.FSM = (*fsm)(nil)

func newFSM(node string, fatal func(error), o observer) *fsm {
	return &fsm{node: node, fatal: fatal, observer: o, machine: machine.New()}
}

// response is what Apply answers to the proposer. The engine hands it on beside
// its own error, so that there is one place that reads both: responseOf.
type response struct{ results []machine.Result }

// responseOf waits for a proposal and reads its results.
func responseOf(future raft.ApplyFuture) ([]machine.Result, error) {
	if err := future.Error(); err != nil {
		return nil, err
	}
	switch r := future.Response().(type) {
	case *response:
		return r.results, nil
	case error:
		return nil, r
	default:
		return nil, fmt.Errorf("the machine answered a %T", r)
	}
}

// Apply runs the commands of one entry. An entry that cannot be read, or that
// shows that this replica has diverged, ends the node: to skip it would make
// the replicas differ.
func (f *fsm) Apply(log *raft.Log) any {
	l, commands, err := decodeEntry(log.Data)
	if err != nil {
		return f.fail(fmt.Errorf("apply entry %d: %w", log.Index, err))
	}
	f.mu.Lock()
	if mine := f.chain.link(); l.index == mine.index && l.hash != mine.hash {
		f.mu.Unlock()
		return f.fail(&DivergenceError{Node: f.node, Index: l.index, Have: fmt.Sprintf("%x", mine.hash), Want: fmt.Sprintf("%x", l.hash)})
	}
	awaited := f.observer.awaits(log.Data)
	results := f.unread[:0]
	if awaited {
		results = make([]machine.Result, 0, len(commands))
	}
	var later []func()
	chain := f.chain.begin(log.Index, log.Data)
	for _, c := range commands {
		result, events := f.machine.Apply(c)
		results = append(results, result)
		chain.add(result, events)
		f.observer.saw(log.Index, events) // before anyone is answered
		later = append(later, f.observer.applied(f.machine, c, result, events)...)
	}
	f.chain = chain.end()
	f.mu.Unlock()
	f.observer.answered(log.Data, results)
	for _, run := range later {
		run()
	}
	if !awaited {
		f.unread = results
		return errNotAwaited
	}
	return &response{results: results}
}

// errNotAwaited is the answer to an entry that this node did not propose, or
// has given up: its results are not kept.
var errNotAwaited = errors.New("nobody on this node waits for the entry")

// fail ends the node. In tests, where fatal returns, the goroutine ends: no
// further entry is applied.
func (f *fsm) fail(err error) error {
	f.fatal(err)
	runtime.Goexit()
	return err
}

// read calls look with the machine, which must not be kept.
func (f *fsm) read(look func(m *machine.Machine)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	look(f.machine)
}

// position is how far this replica is.
func (f *fsm) position() Chain {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chain
}

// Snapshot is the state as bytes.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return stateImage(encodeState(f.chain, f.machine)), nil
}

// Restore replaces the state.
func (f *fsm) Restore(source io.ReadCloser) error {
	data, err := io.ReadAll(source)
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	chain, m, err := decodeState(data)
	if err != nil {
		return err
	}
	f.mu.Lock()
	later := f.observer.restored(f.machine, m)
	f.chain, f.machine = chain, m
	f.observer.sawRestored(m)
	f.mu.Unlock()
	for _, run := range later {
		run()
	}
	return nil
}

// stateImage is a snapshot that is complete in memory.
type stateImage []byte

// Persist writes the snapshot.
func (s stateImage) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		_ = sink.Cancel()
		return fmt.Errorf("write snapshot: %w", err)
	}
	return sink.Close()
}

// Release does nothing.
func (s stateImage) Release() {}

// stateVersion is the first byte of a state.
const stateVersion = 1

func encodeState(c Chain, m *machine.Machine) []byte {
	data := append([]byte{stateVersion}, c.Hash[:]...)
	data = binary.BigEndian.AppendUint64(data, c.Index)
	return append(data, m.Snapshot()...)
}

func decodeState(data []byte) (Chain, *machine.Machine, error) {
	var c Chain
	const header = 1 + len(c.Hash) + 8
	if len(data) < header || data[0] != stateVersion {
		return c, nil, fmt.Errorf("%w: state of an unknown version", machine.ErrMalformed)
	}
	copy(c.Hash[:], data[1:])
	c.Index = binary.BigEndian.Uint64(data[header-8:])
	m, err := machine.Restore(data[header:])
	return c, m, err
}

package replica

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// FSM applies committed entries to a machine and tells its observer.
type FSM struct {
	node     string
	fatal    func(error)
	observer Observer

	mu      sync.Mutex
	machine *machine.Machine
	chain   Chain
}

var _ raft.FSM = (*FSM)(nil)

// Observer follows a replica. Applied and Restored run under the lock of the
// machine and must not block; the calls that they return run without it.
type Observer interface {
	// Applied follows each command of an entry.
	Applied(entry *raft.Log, m *machine.Machine, c machine.Command, result machine.Result,
		events []machine.Event) (calls []func())
	// Restored follows the replacement of the machine by a snapshot.
	Restored(old, now *machine.Machine) (calls []func())
	// Awaits reports whether a caller on this node awaits the results of an entry.
	Awaits(data []byte) bool
	// Answer passes on the results of an entry.
	Answer(data []byte, results []machine.Result)
}

// New returns the FSM of a node, with an empty machine. fatal ends the node; in
// production it does not return.
func New(node string, fatal func(error), o Observer) *FSM {
	return &FSM{node: node, fatal: fatal, observer: o, machine: machine.New()}
}

// DivergenceError reports that the history of this replica is not the leader's.
// Its state cannot be trusted.
type DivergenceError struct {
	Node  string
	Index uint64
	Have  string // this replica's chain hash at Index
	Want  string // the leader's
}

// Error says what to do.
func (e *DivergenceError) Error() string {
	return fmt.Sprintf("node %s has diverged: its chain hash after entry %d is %s, the leader's is %s; do not restart "+
		"it: "+
		"compare the chain hashes of all nodes, remove the one that differs from the majority, keep its folder for a bug "+
		"report, and join it again with an empty one",
		e.Node, e.Index, e.Have, e.Want)
}

// results is the response of Apply.
type results struct{ list []machine.Result }

// Results waits for a proposal and returns the results of its commands. Use it
// for every proposal: the Raft library returns its own errors and those of Apply in
// two places.
func Results(future raft.ApplyFuture) ([]machine.Result, error) {
	if err := future.Error(); err != nil {
		return nil, err
	}
	switch r := future.Response().(type) {
	case *results:
		return r.list, nil
	case error:
		return nil, r
	default:
		return nil, fmt.Errorf("the machine answered a %T", r)
	}
}

// errNotAwaited is the response to an entry without a waiting proposer on this node:
// another node proposed it, or its proposer has given up.
var errNotAwaited = errors.New("no proposer on this node waits for the entry")

// Apply applies the commands of one entry. It ends the node if the entry cannot
// be decoded or shows that this replica has diverged: skipping the entry would
// make the replicas differ.
func (f *FSM) Apply(log *raft.Log) any {
	l, commands, err := decodeEntry(log.Data)
	if err != nil {
		return f.fail(fmt.Errorf("apply entry %d: %w", log.Index, err))
	}
	f.mu.Lock()
	if mine := f.chain.link(); l.index == mine.index && l.hash != mine.hash {
		f.mu.Unlock()
		return f.fail(&DivergenceError{Node: f.node, Index: l.index, Have: fmt.Sprintf("%x", mine.hash),
			Want: fmt.Sprintf("%x", l.hash)})
	}
	awaited := f.observer.Awaits(log.Data)
	list := make([]machine.Result, 0, len(commands))
	var calls []func()
	hasher := f.chain.next(log.Index, log.Data)
	for _, c := range commands {
		result, events := f.machine.Apply(c)
		list = append(list, result)
		hasher.add(result, events)
		calls = append(calls, f.observer.Applied(log, f.machine, c, result, events)...)
	}
	f.chain = hasher.chain()
	f.mu.Unlock()
	for _, call := range calls { // first: the next holder of a lock waits longer than the caller that has released it
		call()
	}
	f.observer.Answer(log.Data, list)
	if !awaited {
		return errNotAwaited
	}
	return &results{list}
}

// fail ends the node. In tests, where fatal returns, it ends the goroutine: no
// further entry is applied.
func (f *FSM) fail(err error) error {
	f.fatal(err)
	runtime.Goexit()
	return err
}

// Read calls look with the machine, under its lock. look must not keep it.
func (f *FSM) Read(look func(m *machine.Machine)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	look(f.machine)
}

// Chain returns the chain of this replica.
func (f *FSM) Chain() Chain {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chain
}

// Snapshot returns the current state. Entries wait neither until it is encoded and written
// nor until it is copied: Persist copies it in pieces.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &stateImage{f.chain, f.machine.Image(), &f.mu}, nil
}

// Restore replaces the state. It ends the node if a newer build has written the
// snapshot: the Raft library would only log the error and try again.
func (f *FSM) Restore(source io.ReadCloser) error {
	data, err := io.ReadAll(source)
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	chain, m, err := DecodeState(data)
	if newer := (*engine.FormatError)(nil); errors.As(err, &newer) {
		f.fatal(fmt.Errorf("restore snapshot: %w", err))
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	calls := f.observer.Restored(f.machine, m)
	f.chain, f.machine = chain, m
	f.mu.Unlock()
	for _, call := range calls {
		call()
	}
	return nil
}

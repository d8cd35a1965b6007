package replica

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// silent is an Observer that does nothing.
type silent struct{}

func (silent) Applied(*raft.Log, *machine.Machine, machine.Command, machine.Result, []machine.Event) []func() {
	return nil
}
func (silent) Restored(_, _ *machine.Machine) []func() { return nil }
func (silent) Awaits([]byte) bool                      { return false }
func (silent) Answer([]byte, []machine.Result)         {}

// Two replicas apply the same entry, and one of them grants another token.
func TestDifferentResultsGiveDifferentChains(t *testing.T) {
	session := engine.NewSessionID()
	entry := EncodeEntry(Chain{}, []machine.Command{
		&machine.OpenSession{Session: session, TTL: engine.DefaultTTL},
		&machine.Acquire{Session: session, Incarnation: 1,
			Request: engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}, Mode: engine.Correctness, Holder: "test"}},
	})
	replica := func() *FSM { return New("n", func(err error) { t.Error(err) }, silent{}) }
	run := func(f *FSM) Chain {
		f.Apply(&raft.Log{Index: 3, Data: entry})
		return f.Chain()
	}
	sound, twin, faulty := replica(), replica(), replica()
	faulty.machine.Apply(&machine.RaiseFloor{By: 5})
	require.Equal(t, run(sound), run(twin))
	require.NotEqual(t, sound.Chain(), run(faulty))
}

func TestChainCoversResultsAndEvents(t *testing.T) {
	chain := func(r machine.Result, events ...machine.Event) Chain {
		h := Chain{}.next(1, []byte("one entry"))
		h.add(r, events)
		return h.chain()
	}
	granted := func(nonce engine.Nonce, token fencing.Token) machine.Event {
		return machine.Event{Type: machine.EventGranted, Nonce: nonce, Token: token}
	}
	done := machine.Result{Code: machine.Done}
	different := []Chain{
		chain(machine.Result{Code: machine.Granted, Token: 7}),
		chain(machine.Result{Code: machine.Granted, Token: 8}),
		chain(machine.Result{Code: machine.Granted, Token: 8, Slot: 1}),
		chain(done),
		chain(done, granted(1, 9)),
		chain(done, granted(2, 9)),
		chain(done, granted(2, 10)),
	}
	for i, a := range different {
		for _, b := range different[i+1:] {
			require.NotEqual(t, a.Hash, b.Hash)
		}
	}
}

func TestResultsReadsBothErrors(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		future fixedFuture
		fails  bool
	}{
		"results":              {fixedFuture{answer: &results{[]machine.Result{{Code: machine.Done}}}}, false},
		"error of the library": {fixedFuture{err: broken}, true},
		"error of the machine": {fixedFuture{answer: broken}, true},
		"nothing":              {fixedFuture{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Results(c.future)
			require.Equal(t, c.fails, err != nil)
		})
	}
}

// fixedFuture has been answered.
type fixedFuture struct {
	raft.ApplyFuture
	answer any
	err    error
}

func (f fixedFuture) Error() error  { return f.err }
func (f fixedFuture) Response() any { return f.answer }

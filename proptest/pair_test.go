package proptest

import (
	"fmt"
	"reflect"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
	"github.com/leased-project/leased/raftstore/machine"
)

// pair is the machine and the model, given the same commands, and a witness of
// what the machine says.
type pair struct {
	machine *machine.Machine
	model   *model.Model
	witness *model.Witness
	log     [][]byte // the batches so far
	cases   *cases
	history

	// The two number lock-delays and the lives of sessions each in its own way.
	delayOf map[uint64]uint64 // the machine's number to the model's
	lifeOf  map[uint64]uint64 // likewise
}

func newPair(c *cases) *pair {
	return &pair{machine: machine.New(), model: model.New(), witness: model.NewWitness(), cases: c, history: newHistory(), delayOf: map[uint64]uint64{},
		lifeOf: map[uint64]uint64{0: 0}}
}

// apply runs a batch as the log would, and compares after every command.
func (p *pair) apply(t *rapid.T, batch ...machine.Command) {
	entry := machine.Encode(batch...)
	p.log = append(p.log, entry)
	decoded, err := machine.Decode(entry)
	require.NoError(t, err)
	require.True(t, reflect.DeepEqual(batch, decoded), "decoded is not what was encoded: %v, %v", batch, decoded)
	for _, c := range decoded {
		t.Logf("log: %s", shown{c})
		p.step(t, c)
	}
}

func (p *pair) step(t require.TestingT, c machine.Command) {
	if a, ok := c.(*machine.Acquire); ok && p.model.Open(p.session(a.Session, a.Incarnation)) {
		p.witness.Asked(a.Session, a.Request)
	}
	before := p.cases.before(p, c)
	result, events := p.machine.Apply(c)
	wantOutcome, wantEvents := p.ask(c)

	if _, known := p.lifeOf[result.Incarnation]; !known {
		p.lifeOf[result.Incarnation] = wantOutcome.Life
	}
	same(t, c, "outcome", wantOutcome, p.outcomeOf(result))
	same(t, c, "number of events", len(wantEvents), len(events))
	for i, e := range events {
		have := p.eventOf(e, wantEvents[i])
		same(t, c, "event", wantEvents[i], have)
		content(t, c, p.witness.See(have))
	}
	content(t, c, tellWitness(p.witness, p.machine, c, result))
	content(t, c, p.witness.Settled())
	p.compareStates(t, c)
	p.cases.after(p, c, before, result, events)
}

// same is require.Equal, which makes up its messages only when it fails.
func same(t require.TestingT, c machine.Command, what string, model, machine any) {
	if !reflect.DeepEqual(model, machine) {
		require.Equal(t, model, machine, "%s: %s (expected is the model, actual the machine)", show(c), what)
	}
}

func content(t require.TestingT, c machine.Command, err error) {
	if err != nil {
		require.NoError(t, err, "%s: the witness", show(c))
	}
}

// session is a session in the model's words. An incarnation that was never given
// is of no life.
func (p *pair) session(id engine.SessionID, incarnation uint64) model.Session {
	life, known := p.lifeOf[incarnation]
	if !known {
		life = ^uint64(0)
	}
	return model.Session{ID: id, Life: life}
}

// ask gives the model the same command.
func (p *pair) ask(c machine.Command) (model.Outcome, []model.Event) {
	switch c := c.(type) {
	case *machine.Lead:
		return p.model.Lead()
	case *machine.OpenSession:
		return p.model.OpenSession(c.Session, c.TTL)
	case *machine.CloseSession:
		return p.model.CloseSession(p.session(c.Session, c.Incarnation))
	case *machine.Acquire:
		return p.model.Acquire(p.session(c.Session, c.Incarnation), c.Request)
	case *machine.Release:
		return p.model.Release(p.session(c.Session, c.Incarnation), c.Nonce)
	case *machine.Expire:
		return p.model.Expire(p.session(c.Session, c.Incarnation), c.Generation)
	case *machine.Break:
		return p.model.Break(c.Resource, c.Token)
	case *machine.EndDelay:
		return p.model.EndDelay(c.Resource, p.delayOf[c.Delay], c.Generation)
	case *machine.RaiseFloor:
		return p.model.RaiseFloor(c.By)
	case *machine.EndSessions:
		return p.model.EndSessions()
	}
	return p.askTopology(c)
}

// askTopology gives the model the same command, if it changes the topology.
func (p *pair) askTopology(c machine.Command) (model.Outcome, []model.Event) {
	switch c := c.(type) {
	case *machine.SetPolicy:
		return p.model.SetPolicy(c.Policy, c.Version, c.Now)
	case *machine.DeletePolicy:
		return p.model.DeletePolicy(c.Prefix, c.Version, c.Now)
	case *machine.AbortMove:
		return p.model.AbortMove(c.Prefix)
	case *machine.FinishMove:
		return p.model.FinishMove(c.Prefix, c.Version)
	case *machine.SetFleet:
		return p.model.SetFleet(c.Fleet, c.Version, c.Now, c.Force)
	case *machine.FinishFleet:
		return p.model.FinishFleet(c.Version)
	case *machine.AssignRange:
		return p.model.AssignRange(c.Member)
	case *machine.RaiseCeiling:
		return p.model.RaiseCeiling(c.To)
	case *machine.Reconcile:
		return p.model.Reconcile(c.Version, c.Ceiling)
	case *machine.FinishReconcile:
		return p.model.FinishReconcile(c.Version)
	case *machine.MarkRestored:
		return p.model.MarkRestored(c.Version, c.Ceiling)
	case *machine.SetMemberAPI:
		return p.model.SetMemberAPI(c.ID, c.Address)
	}
	panic(fmt.Sprintf("the model does not know %T", c))
}

// tellWitness passes on what is no event, and how locks are provided now.
func tellWitness(w *model.Witness, m *machine.Machine, c machine.Command, result machine.Result) error {
	ended := []engine.SessionID{}
	if result.Code == machine.Done {
		switch command := c.(type) {
		case *machine.RaiseFloor:
			w.Raised(result.Token)
		case *machine.CloseSession:
			ended = append(ended, command.Session)
		case *machine.Expire:
			ended = append(ended, command.Session)
		case *machine.EndSessions:
			ended = sessions
		case *machine.FinishMove, *machine.Reconcile:
			w.Raised(m.LastToken())
		case *machine.AssignRange:
			if err := w.RangeAssigned(*rangeOf(result.Range)); err != nil {
				return err
			}
		}
	}
	for _, id := range ended {
		if err := w.SessionEnded(id); err != nil {
			return err
		}
	}
	e := m.Efficiency()
	return w.Routed(waysOf(m), e.Floor, e.Ceiling)
}

// waysOf is how the locks are provided, by the topology that clients get.
func waysOf(m *machine.Machine) map[fencing.Resource]model.Way {
	ways := map[fencing.Resource]model.Way{}
	topology := m.Topology()
	for _, name := range names {
		mode, err := topology.ModeOf(name)
		ways[name] = model.Way{Mode: mode, Moving: err != nil, Ready: topology.Ready}
	}
	return ways
}

func rangeOf(r *machine.Range) *model.Range {
	if r == nil {
		return nil
	}
	return &model.Range{Floor: r.Floor, Ceiling: r.Ceiling, Version: r.Version, First: r.First}
}

func (p *pair) compareStates(t require.TestingT, c machine.Command) {
	_, version := p.machine.Policies()
	same(t, c, "generation", p.model.Generation(), p.machine.Generation())
	same(t, c, "last token", p.model.LastToken(), p.machine.LastToken())
	open := map[engine.SessionID]model.Settings{}
	for id, s := range p.machine.Sessions() {
		open[id] = model.Settings{TTL: s.TTL, Life: p.session(id, s.Incarnation).Life}
	}
	same(t, c, "sessions", p.model.Sessions(), open)
	same(t, c, "version of the policies", p.model.Version(), version)
	for _, name := range names {
		same(t, c, "lock", p.model.Inspect(name), p.machine.Inspect(name))
	}
	p.compareTopologies(t, c)
	want, have := p.model.Delays(), p.machine.Delays()
	same(t, c, "number of delays", len(want), len(have))
	for i, e := range have {
		same(t, c, "delay", want[i], p.eventOf(e, want[i]))
	}
}

func (p *pair) compareTopologies(t require.TestingT, c machine.Command) {
	e, topology := p.machine.Efficiency(), p.machine.Topology()
	same(t, c, "policies", append([]engine.Policy{}, p.model.Policies()...), append([]engine.Policy{}, topology.Policies.All()...))
	same(t, c, "ready", p.model.Ready(), topology.Ready)
	same(t, c, "versions", []uint64{p.model.Version(), p.model.Version()}, []uint64{topology.Version, e.Version})
	same(t, c, "fleet of the clients", e.Fleet, topology.Fleet)
	same(t, c, "redis", p.model.Redis(), model.Redis{Fleet: e.Fleet, Next: e.Next, NextVersion: e.NextVersion, Now: e.NextNow, Force: e.NextForce,
		Floor: e.Floor, Ceiling: e.Ceiling, Fresh: e.Fresh, Ready: e.Ready, Restored: e.Restored, Reconciled: e.ReconcileVersion, Assigned: e.Assigned})
	want := p.model.Migrations()
	same(t, c, "number of moves", len(want), len(e.Moves))
	for i, mv := range e.Moves {
		same(t, c, "move", want[i], model.Migration(mv))
	}
	for _, id := range []string{"n1", "n2"} {
		same(t, c, "member", p.model.MemberAPI(id), p.machine.MemberAPI(id))
	}
}

func (p *pair) outcomeOf(r machine.Result) model.Outcome {
	return model.Outcome{Code: model.Code(r.Code.String()), Token: r.Token, Slot: r.Slot, Mode: r.Mode, Next: r.Next,
		Resource: r.Resource, Generation: r.Generation, Version: r.Version, Life: p.lifeOf[r.Incarnation], Range: rangeOf(r.Range)}
}

// eventOf is the machine's event in the model's words. The first time that the
// machine gives a number to a delay, it is paired with the model's.
func (p *pair) eventOf(e machine.Event, want model.Event) model.Event {
	delay := e.DelayID
	if e.Type == machine.EventDelayed {
		if _, known := p.delayOf[delay]; !known {
			p.delayOf[delay] = want.DelayID
		}
		delay = p.delayOf[delay]
	}
	return model.Event{What: model.Happening(e.Type.String()), Resources: e.Resources, Session: e.Session, Nonce: e.Nonce,
		Token: e.Token, Slot: e.Slot, Mode: e.Mode, Holder: e.Holder, DelayID: delay, Delay: e.Delay}
}

// shown is a command that is written out only where someone reads it: in the
// log of the run that failed.
type shown struct{ machine.Command }

func (s shown) String() string { return show(s.Command) }

// show is a command for a person: the type, and the fields in short.
func show(c machine.Command) string {
	switch c := c.(type) {
	case *machine.Acquire:
		q := c.Request
		return fmt.Sprintf("Acquire{session %x as %d, nonce %d, %q, %s, permits %d, mode %s, wait %v}",
			c.Session[0], c.Incarnation, q.Nonce, q.Resources, q.Kind, q.Permits, q.Mode, q.Wait)
	case *machine.Release:
		return fmt.Sprintf("Release{session %x as %d, nonce %d}", c.Session[0], c.Incarnation, c.Nonce)
	case *machine.OpenSession:
		return fmt.Sprintf("OpenSession{session %x, ttl %v}", c.Session[0], c.TTL)
	case *machine.CloseSession:
		return fmt.Sprintf("CloseSession{session %x as %d}", c.Session[0], c.Incarnation)
	case *machine.Expire:
		return fmt.Sprintf("Expire{session %x as %d, generation %d}", c.Session[0], c.Incarnation, c.Generation)
	}
	return fmt.Sprintf("%T%+v", c, c)
}

// The vocabulary of all random runs is small, so that things collide.
var (
	names    = []fencing.Resource{"a", "a/1", "a/1/x", "b", "b/2"}
	prefixes = []string{"", "a", "a/1", "b", "b/"}
	sessions = []engine.SessionID{{1}, {2}, {3}, {4}}
	holders  = []string{"", "ann", "bob"}
)

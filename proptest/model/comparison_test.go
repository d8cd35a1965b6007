package model_test

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
	"github.com/leased-project/leased/raftstore/machine"
)

// comparison applies the same commands to the machine and to the model, and checks the
// machine's events with a log checker.
type comparison struct {
	machine *machine.Machine
	model   *model.Model
	checker *model.LogChecker
	log     [][]byte // the batches so far
	cases   *cases
	history

	// Machine and model number lock-delays and incarnations independently.
	delayOf       map[uint64]uint64 // the machine's number to the model's
	incarnationOf map[uint64]uint64 // likewise
}

func newComparison(c *cases) *comparison {
	return &comparison{machine: machine.New(), model: model.New(), checker: model.NewLogChecker(), cases: c,
		history: newHistory(), delayOf: map[uint64]uint64{},
		incarnationOf: map[uint64]uint64{0: 0}}
}

// apply encodes, decodes and applies a batch, and compares after every command.
func (p *comparison) apply(t *rapid.T, batch ...machine.Command) {
	entry := machine.Encode(batch...)
	p.log = append(p.log, entry)
	decoded, err := machine.Decode(entry)
	require.NoError(t, err)
	require.True(t, reflect.DeepEqual(batch, decoded), "the decoded batch differs: encoded %v, decoded %v", batch, decoded)
	for _, c := range decoded {
		t.Logf("log: %s", shown{c})
		p.step(t, c)
	}
}

func (p *comparison) step(t require.TestingT, c machine.Command) {
	if a, ok := c.(*machine.Acquire); ok && p.model.Open(p.session(a.Session, a.Incarnation)) {
		p.checker.Requested(p.session(a.Session, a.Incarnation), a.Request)
	}
	before := p.cases.before(p, c)
	result, events := p.machine.Apply(c)
	wantOutcome := p.applyToModel(c)
	wantEvents := p.model.Events()

	if _, known := p.incarnationOf[result.Incarnation]; !known {
		p.incarnationOf[result.Incarnation] = wantOutcome.Incarnation
	}
	same(t, c, "outcome", wantOutcome, p.outcomeOf(result))
	same(t, c, "number of events", len(wantEvents), len(events))
	for i, e := range events {
		have := p.eventOf(e, wantEvents[i])
		same(t, c, "event", wantEvents[i], have)
		requireValid(t, c, p.checker.Observe(have))
	}
	requireValid(t, c, notifyChecker(p.checker, p.machine, p.session, c, result))
	requireValid(t, c, p.checker.CheckWaiters())
	p.compareStates(t, c)
	p.cases.after(p, c, before, result, events)
}

// same is require.Equal, but formats its message only on failure.
func same(t require.TestingT, c machine.Command, what string, model, machine any) {
	if !reflect.DeepEqual(model, machine) {
		require.Equal(t, model, machine, "%s: %s (expected is the model, actual the machine)", show(c), what)
	}
}

func requireValid(t require.TestingT, c machine.Command, err error) {
	if err != nil {
		require.NoError(t, err, "%s: the log checker", show(c))
	}
}

// session converts a session to the model's numbering. An incarnation that never existed
// matches no session.
func (p *comparison) session(id engine.SessionID, incarnation uint64) model.Session {
	number, known := p.incarnationOf[incarnation]
	if !known {
		number = ^uint64(0)
	}
	return model.Session{ID: id, Incarnation: number}
}

// applyToModel applies the same command to the model.
func (p *comparison) applyToModel(c machine.Command) model.Outcome {
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
	case *machine.Update:
		return p.model.Update(p.session(c.Session, c.Incarnation), c.TTL, c.Nonce, c.Metadata)
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
	case *machine.EndRequests:
		return p.model.EndRequests(c.Max)
	}
	return p.applyTopologyToModel(c)
}

// applyTopologyToModel applies a command that changes the topology.
func (p *comparison) applyTopologyToModel(c machine.Command) model.Outcome {
	switch c := c.(type) {
	case *machine.SetPolicy:
		return p.model.SetPolicy(c.Policy, c.Version, c.Now)
	case *machine.DeletePolicy:
		return p.model.DeletePolicy(c.Prefix, c.Version, c.Now)
	case *machine.AbortMigration:
		return p.model.AbortMigration(c.Prefix)
	case *machine.FinishMigration:
		return p.model.FinishMigration(c.Prefix, c.Version, c.Granted)
	case *machine.SetFleet:
		return p.model.SetFleet(c.Fleet, c.Version, c.Now, c.Force)
	case *machine.FinishFleet:
		return p.model.FinishFleet(c.Version)
	case *machine.NameLife:
		return p.model.NameLife(c.Member, c.Life, c.Version)
	case *machine.FinishRecovery:
		return p.model.FinishRecovery(c.Member, c.Life)
	case *machine.CloseSets:
		return p.model.CloseSets(c.Version, c.Granted)
	case *machine.RaiseCeiling:
		return p.model.RaiseCeiling(c.To)
	case *machine.Reconcile:
		return p.model.Reconcile(c.At, c.Version, c.Ceiling, c.Lives, c.Past)
	case *machine.FinishReconcile:
		return p.model.FinishReconcile(c.Version)
	case *machine.MarkRestored:
		return p.model.MarkRestored(c.Version, c.Ceiling, c.Fleet, c.FleetSet, c.FleetUnused)
	case *machine.SetMemberAPI:
		return p.model.SetMemberAPI(c.ID, c.Address)
	}
	panic(fmt.Sprintf("the model does not implement %T", c))
}

// notifyChecker passes state changes without events, and the current routes, to the log
// checker. number converts the incarnation of a session to the one that the checker knows.
func notifyChecker(w *model.LogChecker, m *machine.Machine, number func(engine.SessionID, uint64) model.Session,
	c machine.Command, result machine.Result) error {
	if result.Code == machine.Done {
		switch command := c.(type) {
		case *machine.RaiseFloor:
			w.RaiseFloor(result.Token)
		case *machine.CloseSession:
			w.SessionEnded(number(command.Session, command.Incarnation))
		case *machine.Expire:
			w.SessionEnded(number(command.Session, command.Incarnation))
		case *machine.EndRequests, *machine.EndSessions:
			if err := w.AllEnded(); err != nil {
				return err
			}
		case *machine.FinishMigration:
			w.RaiseFloor(m.LastToken())
			if command.Granted != fencing.None {
				w.RedisGranted(command.Granted)
			}
		case *machine.Reconcile, *machine.MarkRestored, *machine.SetFleet, *machine.FinishFleet:
			w.RaiseFloor(m.LastToken())
		}
	}
	e := m.Efficiency()
	return w.Routed(routesOf(m), e.Floor, e.Ceiling)
}

// routesOf returns the routes of all locks, by the topology that clients get.
func routesOf(m *machine.Machine) map[fencing.Resource]model.Route {
	routes := map[fencing.Resource]model.Route{}
	topology := m.Topology()
	for _, name := range names {
		mode, err := topology.ModeOf(name)
		routes[name] = model.Route{Mode: mode, Moving: err != nil, Ready: topology.Ready}
	}
	return routes
}

func (p *comparison) compareStates(t require.TestingT, c machine.Command) {
	_, version := p.machine.Policies()
	same(t, c, "generation", p.model.Generation, p.machine.Generation())
	same(t, c, "last token", p.model.LastToken, p.machine.LastToken())
	open := map[engine.SessionID]model.SessionInfo{}
	page, _ := p.machine.Sessions(machine.AllSessions, machine.AllSessions)
	for _, s := range page {
		open[s.ID] = model.SessionInfo{TTL: s.TTL, Incarnation: p.session(s.ID, s.Incarnation).Incarnation}
	}
	same(t, c, "sessions", p.model.Sessions, open)
	same(t, c, "version of the policies", p.model.Version, version)
	for _, name := range names {
		same(t, c, "lock", p.model.Inspect(name), p.machine.Inspect(name))
	}
	p.compareTopologies(t, c)
	want, have := p.model.Delays(), delaysOf(p.machine)
	same(t, c, "number of delays", len(want), len(have))
	for i, e := range have {
		same(t, c, "delay", want[i], p.eventOf(e, want[i]))
	}
}

// delaysOf returns the running lock-delays of a machine, sorted by name.
func delaysOf(m *machine.Machine) []machine.Event {
	delays, _ := m.Delays(machine.AllDelays, machine.AllDelays)
	slices.SortFunc(delays, func(a, b machine.Event) int { return slices.Compare(a.Resources, b.Resources) })
	return delays
}

func (p *comparison) compareTopologies(t require.TestingT, c machine.Command) {
	e, topology := p.machine.Efficiency(), p.machine.Topology()
	same(t, c, "policies", append([]engine.Policy{}, p.model.Policies()...),
		append([]engine.Policy{}, topology.Policies.All()...))
	same(t, c, "ready", p.model.Ready(), topology.Ready)
	same(t, c, "versions", []uint64{p.model.Version, p.model.Version}, []uint64{topology.Version, e.Version})
	same(t, c, "fleet of the clients", e.Fleet, topology.Fleet)
	var lives []model.Life
	for _, l := range e.Lives {
		lives = append(lives, model.Life(l))
	}
	var open []model.Set
	for _, s := range e.Open {
		open = append(open, model.Set(s))
	}
	same(t, c, "redis", p.model.Redis(), model.Redis{Fleet: e.Fleet, Next: e.Next, NextVersion: e.NextVersion,
		Now: e.NextNow, Force: e.NextForce,
		Floor: e.Floor, Ceiling: e.Ceiling, Fresh: e.Fresh, Ready: e.Ready, Restored: e.Restored,
		Reconciled: e.ReconcileVersion, FleetSet: e.FleetSet,
		Lives: lives, Open: open})
	want := p.model.Migrations()
	same(t, c, "number of moves", len(want), len(e.Migrations))
	for i, mv := range e.Migrations {
		same(t, c, "move", want[i], model.Migration(mv))
	}
	for _, id := range []string{"n1", "n2"} {
		same(t, c, "member", p.model.Members[id], p.machine.MemberAPIs()[id])
	}
}

func (p *comparison) outcomeOf(r machine.Result) model.Outcome {
	return model.Outcome{Code: model.Code(r.Code.String()), Token: r.Token, Slot: r.Slot, Permits: r.Permits, Mode: r.Mode,
		Next:     r.Next,
		Resource: r.Resource, Generation: r.Generation, Version: r.Version, Incarnation: p.incarnationOf[r.Incarnation]}
}

// eventOf converts the machine's event to the model's type. A new delay number of the
// machine is paired with the model's.
func (p *comparison) eventOf(e machine.Event, want model.Event) model.Event {
	delay := e.DelayID
	if e.Type == machine.EventDelayed {
		if _, known := p.delayOf[delay]; !known {
			p.delayOf[delay] = want.DelayID
		}
		delay = p.delayOf[delay]
	}
	return model.Event{Kind: model.EventKind(e.Type.String()), Resources: e.Resources, Session: e.Session, Nonce: e.Nonce,
		Token: e.Token, Slot: e.Slot, Mode: e.Mode, Holder: e.Holder, DelayID: delay, Delay: e.Delay,
		Incarnation: p.incarnationOf[e.Incarnation]}
}

// shown formats a command lazily, for the log of a failed run.
type shown struct{ machine.Command }

func (s shown) String() string { return show(s.Command) }

// show formats a command briefly.
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
	case *machine.EndRequests:
		return fmt.Sprintf("EndRequests{%d}", c.Max)
	case *machine.Expire:
		return fmt.Sprintf("Expire{session %x as %d, generation %d}", c.Session[0], c.Incarnation, c.Generation)
	}
	return fmt.Sprintf("%T%+v", c, c)
}

// All random runs use few names, so that requests conflict.
var (
	names    = []fencing.Resource{"a", "a/1", "a/1/x", "b", "b/2"}
	prefixes = []string{"", "a", "a/1", "b", "b/"}
	sessions = []engine.SessionID{{1}, {2}, {3}, {4}}
	holders  = []string{"", "ann", "bob"}
)

package model_test

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// below draws a number from 0 to n-1, uniformly. The generators of rapid prefer small
// numbers, which would make rare commands too rare.
func below(n int) *rapid.Generator[int] {
	return rapid.Custom(func(t *rapid.T) int {
		number, width := 0, 1
		for ; width < 4*n; width *= 2 {
			number *= 2
			if coin.Draw(t, "bit") {
				number++
			}
		}
		return number * n / width
	})
}

var coin = rapid.Bool()

// dice are created once: creating a generator costs more than using it.
var dice = func() (d [129]*rapid.Generator[int]) {
	for n := 1; n < len(d); n++ {
		d[n] = below(n)
	}
	return d
}()

func draw(t *rapid.T, n int, label string) int {
	if n <= 1 {
		return 0
	}
	return dice[min(n, len(dice)-1)].Draw(t, label)
}

func pick[T any](t *rapid.T, list []T, label string) T { return list[draw(t, len(list), label)] }

// profile is a mix of commands: the weight of each kind.
type profile struct {
	name                                                                         string
	acquire, release, again, open, shut, expire, brk, delay, policy, lead, floor int
	over                                                                         int // end all sessions
	move, fleet                                                                  int // in addition to policy
	sets, shared, permits                                                        int // of 8 requests, others exclusive
	try                                                                          int // of 8 requests: without waiting
	update                                                                       int
	almostExhausted                                                              bool
}

var profiles = []profile{
	{name: "everything", update: 4, over: 1, move: 4, fleet: 4, acquire: 34, release: 12, again: 10, open: 6, shut: 3,
		expire: 5, brk: 5, delay: 8, policy: 6, lead: 3, floor: 1, sets: 3, shared: 3, permits: 2, try: 2},
	{name: "queues", acquire: 40, release: 20, again: 6, open: 4, shut: 2, expire: 2, brk: 2, lead: 1, shared: 2,
		permits: 1, try: 1},
	{name: "sets", update: 3, acquire: 40, release: 20, again: 4, open: 4, shut: 2, expire: 2, brk: 4, policy: 4, move: 6,
		lead: 1, sets: 7, shared: 4, try: 1},
	{name: "permits", acquire: 40, release: 20, again: 4, open: 4, shut: 2, expire: 2, brk: 2, lead: 1, permits: 7,
		shared: 1, try: 1},
	{name: "copies", update: 4, acquire: 20, release: 16, again: 40, open: 8, shut: 3, expire: 3, brk: 3, delay: 3,
		lead: 2, sets: 2, shared: 2, permits: 2, try: 4},
	{name: "sessions", update: 5, over: 1, acquire: 30, release: 8, again: 8, open: 14, shut: 6, expire: 14, brk: 1,
		delay: 4, lead: 8, sets: 2, shared: 2, permits: 2, try: 1},
	{name: "delays", acquire: 30, release: 8, again: 4, open: 8, shut: 1, expire: 6, brk: 16, delay: 16, policy: 4,
		lead: 4, sets: 2, shared: 5, permits: 2, try: 1},
	{name: "policies", acquire: 14, release: 14, again: 6, open: 6, shut: 2, expire: 2, brk: 3, delay: 6, policy: 30,
		move: 20, fleet: 2, lead: 1, sets: 4, shared: 2, permits: 1, try: 3},
	{name: "moves", acquire: 30, release: 10, again: 4, open: 6, shut: 1, expire: 3, brk: 4, delay: 5, policy: 12,
		move: 14, fleet: 8, lead: 1, sets: 5, shared: 3, try: 1},
	{name: "fleets", acquire: 10, release: 6, again: 4, open: 4, policy: 8, move: 8, fleet: 40, lead: 1, sets: 2, try: 3},
	{name: "exhaustion", acquire: 30, release: 16, again: 8, open: 6, shut: 2, expire: 2, brk: 2, delay: 3, floor: 6,
		policy: 3, move: 2, fleet: 10, sets: 2, shared: 2, permits: 2, try: 2, almostExhausted: true},
}

// generator draws the commands of one run. It inspects the machine so that most commands
// have an effect, and keeps earlier commands so that it can repeat them.
type generator struct {
	*comparison
	profile profile
	names   []fencing.Resource                // the fewer, the longer the queues
	nonces  map[engine.SessionID]engine.Nonce // the last one used
	given   []machine.Command                 // all commands, for late copies
	delays  []machine.EndDelay                // all that were ever started
}

func newGenerator(t *rapid.T, p *comparison, profile profile) *generator {
	return &generator{comparison: p, profile: profile, names: names[:1+draw(t, len(names), "names")],
		nonces: map[engine.SessionID]engine.Nonce{}}
}

// begin returns the first commands of every run.
func (g *generator) begin(t *rapid.T) []machine.Command {
	batch := []machine.Command{&machine.Lead{}}
	for _, id := range sessions[:2] {
		batch = append(batch, &machine.OpenSession{Session: id, TTL: time.Second})
	}
	if g.profile.fleet > 0 && coin.Draw(t, "ready") {
		batch = append(batch, &machine.SetFleet{Fleet: fleets[0]}, &machine.Reconcile{}, &machine.FinishReconcile{Version: 2})
	}
	if g.profile.almostExhausted {
		left := fencing.Token(draw(t, 64, "left"))
		batch = append(batch, &machine.RaiseFloor{By: fencing.MaxToken - left})
		if coin.Draw(t, "ranges too") {
			batch = append(batch, &machine.RaiseCeiling{To: fencing.MaxToken - fencing.Token(draw(t, 3, "ranges"))<<32})
		}
	}
	if g.profile.delay > 0 {
		batch = append(batch, &machine.SetPolicy{Policy: engine.Policy{Mode: engine.Correctness, LockDelay: time.Second}})
	}
	return batch
}

// batch draws the commands of one log entry.
func (g *generator) batch(t *rapid.T) []machine.Command {
	batch := make([]machine.Command, 1+draw(t, 4, "more"))
	for i := range batch {
		batch[i] = g.command(t)
	}
	g.given = append(g.given, batch...)
	return batch
}

func (g *generator) command(t *rapid.T) machine.Command {
	ending := g.profile.shut + g.profile.expire
	if g.machine.HasEnding() { // more often: migrations are as frequent as ends of sessions in some profiles
		ending += g.profile.policy + g.profile.move
	}
	makers := []struct {
		parts int
		draw  func(*rapid.T) machine.Command
	}{
		{g.profile.acquire, g.acquire}, {g.profile.release, g.release}, {g.profile.again, g.again}, {g.profile.open, g.open},
		{g.profile.shut, g.shut}, {g.profile.expire, g.expire}, {g.profile.brk, g.brk}, {g.profile.delay, g.endDelay},
		{g.profile.policy, g.policy}, {g.profile.move, g.move}, {g.profile.fleet, g.fleet}, {g.profile.lead, g.lead},
		{g.profile.floor, g.floor},
		{ending, g.endRequests}, {g.profile.update, g.update},
		{g.profile.over, func(*rapid.T) machine.Command { return &machine.EndSessions{Above: g.machine.Order()} }},
	}
	total := 0
	for _, m := range makers {
		total += m.parts
	}
	at := draw(t, total, "command")
	for _, m := range makers {
		if at < m.parts {
			return m.draw(t)
		}
		at -= m.parts
	}
	panic("no command")
}

// session draws a session, mostly an open one.
func (g *generator) session(t *rapid.T) engine.SessionID {
	open := slices.DeleteFunc(slices.Clone(sessions), func(id engine.SessionID) bool {
		return g.machine.SessionInfo(id).TTL == 0
	})
	if len(open) > 0 && draw(t, 8, "any session") > 0 {
		return pick(t, open, "open session")
	}
	return pick(t, sessions, "session")
}

// incarnation draws the current incarnation of a session, or sometimes an earlier one of
// any session, as late copies have.
func (g *generator) incarnation(t *rapid.T, id engine.SessionID) uint64 {
	if n := g.machine.SessionInfo(id).Incarnation; n != 0 && draw(t, 16, "earlier incarnation") > 0 {
		return n
	}
	return pick(t, slices.Sorted(maps.Keys(g.incarnationOf)), "incarnation")
}

// parties returns all holders or waiters, each once.
func (g *generator) parties(of func(engine.Status) []engine.Party) []engine.Party {
	var all []engine.Party
	for _, name := range names {
		for _, p := range of(g.machine.Inspect(name)) {
			if !slices.ContainsFunc(all, func(q engine.Party) bool { return q.Session == p.Session && q.Nonce == p.Nonce }) {
				all = append(all, p)
			}
		}
	}
	return all
}

func holdersOf(s engine.Status) []engine.Party { return s.Holders }
func waitersOf(s engine.Status) []engine.Party { return s.Waiters }

func (g *generator) acquire(t *rapid.T) machine.Command {
	id := g.session(t)
	q := engine.Request{Resources: []fencing.Resource{pick(t, g.names, "resource")},
		Wait:   draw(t, 8, "try") >= g.profile.try,
		Holder: pick(t, holders, "holder")}
	if draw(t, 8, "old nonce") == 0 { // a used one, or one that will be used
		q.Nonce = engine.Nonce(1 + draw(t, int(g.nonces[id])+2, "nonce"))
	} else {
		g.nonces[id]++
		q.Nonce = g.nonces[id]
	}
	switch kind := draw(t, 8, "kind"); {
	case kind < g.profile.permits:
		q.Kind, q.Permits = engine.Permit, 1+int(q.Resources[0][0])%3 // the number that belongs to the lock
		if draw(t, 8, "other permits") == 0 {
			q.Permits = 1 + draw(t, 3, "permits")
		}
	case kind < g.profile.permits+g.profile.shared:
		q.Kind = engine.Shared
	}
	if q.Kind != engine.Permit && draw(t, 8, "set") < g.profile.sets {
		for _, name := range g.names {
			if coin.Draw(t, "and") {
				q.Resources = append(q.Resources, name)
			}
		}
		slices.Sort(q.Resources)
		q.Resources = slices.Compact(q.Resources)
	}
	if draw(t, 6, "expects") == 0 {
		q.Mode = pick(t, []engine.Mode{engine.Correctness, engine.Efficiency}, "mode")
	}
	if draw(t, 8, "labelled") == 0 {
		q.Metadata = map[string]string{"on": "host", "by": q.Holder}
	}
	return &machine.Acquire{Session: id, Incarnation: g.incarnation(t, id), Request: q}
}

func (g *generator) release(t *rapid.T) machine.Command {
	live := g.parties(holdersOf)
	if draw(t, 3, "waiter") == 0 {
		live = g.parties(waitersOf)
	}
	if len(live) == 0 || draw(t, 10, "any") == 0 {
		id := g.session(t) // an old one, or one whose Acquire comes later
		return &machine.Release{Session: id, Incarnation: g.incarnation(t, id),
			Nonce: engine.Nonce(1 + draw(t, int(g.nonces[id])+3, "nonce"))}
	}
	p := pick(t, live, "party")
	return &machine.Release{Session: p.Session, Incarnation: g.incarnation(t, p.Session), Nonce: p.Nonce}
}

func (g *generator) update(t *rapid.T) machine.Command {
	id := g.session(t)
	c := &machine.Update{Session: id, Incarnation: g.incarnation(t, id),
		TTL: pick(t, []time.Duration{0, time.Second, time.Minute}, "ttl")}
	if live := g.parties(holdersOf); len(live) > 0 && coin.Draw(t, "of a lease") {
		p := pick(t, live, "party")
		c.Session, c.Incarnation, c.Nonce = p.Session, g.incarnation(t, p.Session),
			p.Nonce+engine.Nonce(draw(t, 5, "other")/4)
		c.Metadata = map[string]string{"done": pick(t, []string{"10%", "20%"}, "done")}
	}
	return c
}

// again returns a late copy of an earlier command.
func (g *generator) again(t *rapid.T) machine.Command {
	if len(g.given) == 0 {
		return g.lead(t)
	}
	recent := g.given[max(0, len(g.given)-100):]
	return recent[len(recent)-1-draw(t, len(recent), "copy of")]
}

func (g *generator) open(t *rapid.T) machine.Command {
	return &machine.OpenSession{Session: pick(t, sessions, "session"),
		TTL: pick(t, []time.Duration{time.Second, engine.MinTTL, engine.MaxTTL}, "ttl")}
}

func (g *generator) shut(t *rapid.T) machine.Command {
	id := g.session(t)
	return &machine.CloseSession{Session: id, Incarnation: g.incarnation(t, id)}
}

func (g *generator) lead(*rapid.T) machine.Command { return &machine.Lead{} }

// generation draws the current generation, or sometimes another.
func (g *generator) generation(t *rapid.T) uint64 {
	current := g.machine.Generation()
	switch draw(t, 6, "generation") {
	case 0:
		return current - min(current, 1)
	case 1:
		return current + 1
	}
	return current
}

func (g *generator) expire(t *rapid.T) machine.Command {
	id := g.session(t)
	return &machine.Expire{Session: id, Incarnation: g.incarnation(t, id), Generation: g.generation(t)}
}

func (g *generator) endRequests(t *rapid.T) machine.Command {
	return &machine.EndRequests{Max: pick(t, []int{1, 2, 3, machine.MaxEndRequests}, "max")}
}

func (g *generator) brk(t *rapid.T) machine.Command {
	name := pick(t, g.names, "resource")
	token := fencing.Token(1 + draw(t, 20, "token"))
	if held := g.parties(holdersOf); len(held) > 0 && draw(t, 5, "wrong") > 0 {
		token = pick(t, held, "holder").Token
		for _, n := range names { // mostly one of its names
			if slices.ContainsFunc(g.machine.Inspect(n).Holders, func(p engine.Party) bool {
				return p.Token == token
			}) && coin.Draw(t, "here") {
				name = n
			}
		}
	}
	return &machine.Break{Resource: name, Token: token}
}

func (g *generator) endDelay(t *rapid.T) machine.Command {
	for _, e := range delaysOf(g.machine) {
		if !slices.ContainsFunc(g.delays, func(d machine.EndDelay) bool { return d.Delay == e.DelayID }) {
			g.delays = append(g.delays, machine.EndDelay{Resource: e.Resources[0], Delay: e.DelayID})
		}
	}
	if len(g.delays) == 0 {
		return &machine.EndDelay{Resource: pick(t, g.names, "resource"), Delay: uint64(draw(t, 3, "delay")),
			Generation: g.generation(t)}
	}
	end := g.delays[len(g.delays)-1-draw(t, min(len(g.delays), 6), "delay")]
	end.Generation = g.generation(t)
	return &end
}

func (g *generator) floor(t *rapid.T) machine.Command {
	return &machine.RaiseFloor{By: pick(t, []fencing.Token{1, 0, 2, 1 << 32, fencing.MaxToken}, "by")}
}

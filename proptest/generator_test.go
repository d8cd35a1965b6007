package proptest

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// below is a number from 0 to n-1, all alike. The generators of rapid prefer
// small numbers, which would make the rare commands too rare.
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

// dice are made once: making a generator costs more than using it.
var dice = func() (d [129]*rapid.Generator[int]) {
	for n := 1; n < len(d); n++ {
		d[n] = below(n)
	}
	return d
}()

func roll(t *rapid.T, n int, label string) int {
	if n <= 1 {
		return 0
	}
	return dice[min(n, len(dice)-1)].Draw(t, label)
}

func pick[T any](t *rapid.T, list []T, label string) T { return list[roll(t, len(list), label)] }

// taste says what a run is about: how often each command is given, in parts.
type taste struct {
	name                                                                         string
	acquire, release, again, open, shut, expire, brk, delay, policy, lead, floor int
	over                                                                         int // all sessions end
	move, fleet                                                                  int // besides policy
	sets, shared, permits                                                        int // of 8 requests; the rest is exclusive
	try                                                                          int // of 8 requests: without waiting
	almostExhausted                                                              bool
}

var tastes = []taste{
	{name: "everything", over: 1, move: 4, fleet: 4, acquire: 34, release: 12, again: 10, open: 6, shut: 3, expire: 5, brk: 5, delay: 8, policy: 6, lead: 3, floor: 1, sets: 3, shared: 3, permits: 2, try: 2},
	{name: "queues", acquire: 40, release: 20, again: 6, open: 4, shut: 2, expire: 2, brk: 2, lead: 1, shared: 2, permits: 1, try: 1},
	{name: "sets", acquire: 40, release: 20, again: 4, open: 4, shut: 2, expire: 2, brk: 4, policy: 4, move: 6, lead: 1, sets: 7, shared: 4, try: 1},
	{name: "permits", acquire: 40, release: 20, again: 4, open: 4, shut: 2, expire: 2, brk: 2, lead: 1, permits: 7, shared: 1, try: 1},
	{name: "copies", acquire: 20, release: 16, again: 40, open: 8, shut: 3, expire: 3, brk: 3, delay: 3, lead: 2, sets: 2, shared: 2, permits: 2, try: 4},
	{name: "sessions", over: 1, acquire: 30, release: 8, again: 8, open: 14, shut: 6, expire: 14, brk: 1, delay: 4, lead: 8, sets: 2, shared: 2, permits: 2, try: 1},
	{name: "delays", acquire: 30, release: 8, again: 4, open: 8, shut: 1, expire: 6, brk: 16, delay: 16, policy: 4, lead: 4, sets: 2, shared: 5, permits: 2, try: 1},
	{name: "policies", acquire: 14, release: 14, again: 6, open: 6, shut: 2, expire: 2, brk: 3, delay: 6, policy: 30, move: 20, fleet: 2, lead: 1, sets: 4, shared: 2, permits: 1, try: 3},
	{name: "moves", acquire: 30, release: 10, again: 4, open: 6, shut: 1, expire: 3, brk: 4, delay: 5, policy: 12, move: 14, fleet: 8, lead: 1, sets: 5, shared: 3, try: 1},
	{name: "fleets", acquire: 10, release: 6, again: 4, open: 4, policy: 8, move: 8, fleet: 40, lead: 1, sets: 2, try: 3},
	{name: "exhaustion", acquire: 30, release: 16, again: 8, open: 6, shut: 2, expire: 2, brk: 2, delay: 3, floor: 6, policy: 3, move: 2, fleet: 10, sets: 2, shared: 2, permits: 2, try: 2, almostExhausted: true},
}

// script makes up the commands of one run. It looks at the machine so that most
// of them have something to do, and keeps what was, so that it can come again.
type script struct {
	*pair
	taste  taste
	names  []fencing.Resource                // the fewer, the longer their queues
	nonces map[engine.SessionID]engine.Nonce // the last new one
	given  []machine.Command                 // all of them, for late copies
	delays []machine.EndDelay                // all that ever began
}

func newScript(t *rapid.T, p *pair, taste taste) *script {
	return &script{pair: p, taste: taste, names: names[:1+roll(t, len(names), "names")], nonces: map[engine.SessionID]engine.Nonce{}}
}

// begin is what every run starts with.
func (s *script) begin(t *rapid.T) []machine.Command {
	batch := []machine.Command{&machine.Lead{}}
	for _, id := range sessions[:2] {
		batch = append(batch, &machine.OpenSession{Session: id, TTL: time.Second})
	}
	if s.taste.fleet > 0 && coin.Draw(t, "ready") {
		batch = append(batch, &machine.SetFleet{Fleet: fleets[0]}, &machine.Reconcile{}, &machine.FinishReconcile{Version: 2})
	}
	if s.taste.almostExhausted {
		left := fencing.Token(roll(t, 64, "left"))
		batch = append(batch, &machine.RaiseFloor{By: fencing.MaxToken - left})
		if coin.Draw(t, "ranges too") {
			batch = append(batch, &machine.RaiseCeiling{To: fencing.MaxToken - fencing.Token(roll(t, 3, "ranges"))<<32})
		}
	}
	if s.taste.delay > 0 {
		batch = append(batch, &machine.SetPolicy{Policy: engine.Policy{Mode: engine.Correctness, LockDelay: time.Second}})
	}
	return batch
}

// batch is what one log entry holds.
func (s *script) batch(t *rapid.T) []machine.Command {
	batch := make([]machine.Command, 1+roll(t, 4, "more"))
	for i := range batch {
		batch[i] = s.command(t)
	}
	s.given = append(s.given, batch...)
	return batch
}

func (s *script) command(t *rapid.T) machine.Command {
	makers := []struct {
		parts int
		draw  func(*rapid.T) machine.Command
	}{
		{s.taste.acquire, s.acquire}, {s.taste.release, s.release}, {s.taste.again, s.again}, {s.taste.open, s.open},
		{s.taste.shut, s.shut}, {s.taste.expire, s.expire}, {s.taste.brk, s.brk}, {s.taste.delay, s.endDelay},
		{s.taste.policy, s.policy}, {s.taste.move, s.move}, {s.taste.fleet, s.fleet}, {s.taste.lead, s.lead}, {s.taste.floor, s.floor},
		{s.taste.over, func(*rapid.T) machine.Command { return &machine.EndSessions{Above: s.machine.Order()} }},
	}
	total := 0
	for _, m := range makers {
		total += m.parts
	}
	at := roll(t, total, "command")
	for _, m := range makers {
		if at < m.parts {
			return m.draw(t)
		}
		at -= m.parts
	}
	panic("no command")
}

// session is mostly one that is open.
func (s *script) session(t *rapid.T) engine.SessionID {
	open := slices.DeleteFunc(slices.Clone(sessions), func(id engine.SessionID) bool { return s.machine.SessionInfo(id).TTL == 0 })
	if len(open) > 0 && roll(t, 8, "any session") > 0 {
		return pick(t, open, "open session")
	}
	return pick(t, sessions, "session")
}

// incarnation is the present one of a session, or sometimes an earlier one of
// any; late copies have those too.
func (s *script) incarnation(t *rapid.T, id engine.SessionID) uint64 {
	if n := s.machine.SessionInfo(id).Incarnation; n != 0 && roll(t, 16, "earlier life") > 0 {
		return n
	}
	return pick(t, slices.Sorted(maps.Keys(s.lifeOf)), "incarnation")
}

// parties are the holders or waiters there are, each once.
func (s *script) parties(of func(engine.Status) []engine.Party) []engine.Party {
	var all []engine.Party
	for _, name := range names {
		for _, p := range of(s.machine.Inspect(name)) {
			if !slices.ContainsFunc(all, func(q engine.Party) bool { return q.Session == p.Session && q.Nonce == p.Nonce }) {
				all = append(all, p)
			}
		}
	}
	return all
}

func holdersOf(s engine.Status) []engine.Party { return s.Holders }
func waitersOf(s engine.Status) []engine.Party { return s.Waiters }

func (s *script) acquire(t *rapid.T) machine.Command {
	id := s.session(t)
	q := engine.Request{Resources: []fencing.Resource{pick(t, s.names, "resource")}, Wait: roll(t, 8, "try") >= s.taste.try,
		Holder: pick(t, holders, "holder")}
	if roll(t, 8, "old nonce") == 0 { // one that was used, or one that is yet to come
		q.Nonce = engine.Nonce(1 + roll(t, int(s.nonces[id])+2, "nonce"))
	} else {
		s.nonces[id]++
		q.Nonce = s.nonces[id]
	}
	switch kind := roll(t, 8, "kind"); {
	case kind < s.taste.permits:
		q.Kind, q.Permits = engine.Permit, 1+roll(t, 3, "permits")
	case kind < s.taste.permits+s.taste.shared:
		q.Kind = engine.Shared
	}
	if q.Kind != engine.Permit && roll(t, 8, "set") < s.taste.sets {
		for _, name := range s.names {
			if coin.Draw(t, "and") {
				q.Resources = append(q.Resources, name)
			}
		}
		slices.Sort(q.Resources)
		q.Resources = slices.Compact(q.Resources)
	}
	if roll(t, 6, "expects") == 0 {
		q.Mode = pick(t, []engine.Mode{engine.Correctness, engine.Efficiency}, "mode")
	}
	if roll(t, 8, "labelled") == 0 {
		q.Metadata = map[string]string{"on": "host", "by": q.Holder}
	}
	return &machine.Acquire{Session: id, Incarnation: s.incarnation(t, id), Request: q}
}

func (s *script) release(t *rapid.T) machine.Command {
	live := s.parties(holdersOf)
	if roll(t, 3, "waiter") == 0 {
		live = s.parties(waitersOf)
	}
	if len(live) == 0 || roll(t, 10, "any") == 0 {
		id := s.session(t) // an old one, or one whose Acquire is yet to come
		return &machine.Release{Session: id, Incarnation: s.incarnation(t, id), Nonce: engine.Nonce(1 + roll(t, int(s.nonces[id])+3, "nonce"))}
	}
	p := pick(t, live, "party")
	return &machine.Release{Session: p.Session, Incarnation: s.incarnation(t, p.Session), Nonce: p.Nonce}
}

// again is a late copy of something that was given before.
func (s *script) again(t *rapid.T) machine.Command {
	if len(s.given) == 0 {
		return s.lead(t)
	}
	recent := s.given[max(0, len(s.given)-100):]
	return recent[len(recent)-1-roll(t, len(recent), "copy of")]
}

func (s *script) open(t *rapid.T) machine.Command {
	return &machine.OpenSession{Session: pick(t, sessions, "session"), TTL: pick(t, []time.Duration{time.Second, engine.MinTTL, engine.MaxTTL}, "ttl")}
}

func (s *script) shut(t *rapid.T) machine.Command {
	id := s.session(t)
	return &machine.CloseSession{Session: id, Incarnation: s.incarnation(t, id)}
}

func (s *script) lead(*rapid.T) machine.Command { return &machine.Lead{} }

// generation is the present one, or sometimes another.
func (s *script) generation(t *rapid.T) uint64 {
	g := s.machine.Generation()
	switch roll(t, 6, "generation") {
	case 0:
		return g - min(g, 1)
	case 1:
		return g + 1
	}
	return g
}

func (s *script) expire(t *rapid.T) machine.Command {
	id := s.session(t)
	return &machine.Expire{Session: id, Incarnation: s.incarnation(t, id), Generation: s.generation(t)}
}

func (s *script) brk(t *rapid.T) machine.Command {
	name := pick(t, s.names, "resource")
	token := fencing.Token(1 + roll(t, 20, "token"))
	if held := s.parties(holdersOf); len(held) > 0 && roll(t, 5, "wrong") > 0 {
		token = pick(t, held, "holder").Token
		for _, n := range names { // one of its names, most of the time
			if slices.ContainsFunc(s.machine.Inspect(n).Holders, func(p engine.Party) bool { return p.Token == token }) && coin.Draw(t, "here") {
				name = n
			}
		}
	}
	return &machine.Break{Resource: name, Token: token}
}

func (s *script) endDelay(t *rapid.T) machine.Command {
	for _, e := range s.machine.Delays() {
		if !slices.ContainsFunc(s.delays, func(d machine.EndDelay) bool { return d.Delay == e.DelayID }) {
			s.delays = append(s.delays, machine.EndDelay{Resource: e.Resources[0], Delay: e.DelayID})
		}
	}
	if len(s.delays) == 0 {
		return &machine.EndDelay{Resource: pick(t, s.names, "resource"), Delay: uint64(roll(t, 3, "delay")), Generation: s.generation(t)}
	}
	end := s.delays[len(s.delays)-1-roll(t, min(len(s.delays), 6), "delay")]
	end.Generation = s.generation(t)
	return &end
}

func (s *script) floor(t *rapid.T) machine.Command {
	return &machine.RaiseFloor{By: pick(t, []fencing.Token{1, 0, 2, 1 << 32, fencing.MaxToken}, "by")}
}

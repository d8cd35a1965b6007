package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// interesting lists the cases that the random runs must reach. A generator that does not
// reach a case shows nothing about it.
var interesting = []string{
	"acquire: granted at once", "acquire: queued exclusive", "acquire: queued shared", "acquire: queued permit",
	"acquire: queued set",
	"acquire: held", "acquire: wrong mode", "acquire: no session", "acquire: exhausted",
	"acquire: other permits held", "acquire: other permits waited for", "acquire: set of two modes",
	"acquire: reader waits behind a writer that waits",
	"copy: of a holder", "copy: of a waiter", "copy: with other contents",
	"late acquire: after its release", "late acquire: after it was refused", "late acquire: after it was broken",
	"late acquire: after an early release",
	"late acquire: granted again in a session opened again",
	"release: of a holder", "release: of a waiter", "release: of a waiter unblocks others", "release: before its acquire",
	"release: twice",
	"grant: after waiting", "grant: of a set after waiting", "grant: of several readers at once",
	"grant: on two freed resources",
	"grant: slot 2 or higher",
	"session: opened again while open", "session: opened again after its end",
	"session: request of an earlier incarnation", "session: all ended",
	"session: ended with holders and waiters", "session: ended with its own waiter behind its own holder",
	"end: requests left", "end: requests of two sessions", "end: a waiter granted", "end: nothing to end",
	"end: of an earlier incarnation",
	"end: a waiter behind one of an ended session", "break: of an ended session",
	"expire: done", "expire: of an older generation", "expire: no session",
	"break: done", "break: of a set", "break: wrong token", "break: token of another lock",
	"delay: begun", "delay: begun beside holders", "delay: begun during a delay", "delay: ended",
	"delay: ended and a waiter granted",
	"delay: stale number", "delay: stale generation",
	"floor: raised", "floor: exhausted",
	"grant: none, tokens exhausted",
}

// cases counts how often each interesting case was reached, over all runs.
type cases struct {
	hits     map[string]int
	commands int
}

func newCases() *cases { return &cases{hits: map[string]int{}} }

func (c *cases) hit(when bool, name string) {
	if when {
		c.hits[name]++
	}
}

// enough is the number of commands from which on every case must be reached. Shorter runs, such as those with the race
// detector, only print the counts.
const enough = 80_000

// missing returns the cases that were not reached, if there were enough commands.
func (c *cases) missing() (names []string) {
	for _, name := range slices.Concat(interesting, interestingTopology) {
		if c.hits[name] == 0 && c.commands >= enough {
			names = append(names, name)
		}
	}
	return names
}

// report prints the counts and fails if a case was never reached.
func (c *cases) report(t *testing.T) {
	var lines []string
	for _, name := range slices.Concat(interesting, interestingTopology) {
		lines = append(lines, fmt.Sprintf("%9d  %s", c.hits[name], name))
	}
	for _, name := range c.missing() {
		t.Errorf("never reached: %s", name)
	}
	for name := range c.hits {
		if !slices.Contains(interesting, name) && !slices.Contains(interestingTopology, name) {
			t.Errorf("counted but not listed: %s", name)
		}
	}
	t.Logf("%d commands\n%s", c.commands, strings.Join(lines, "\n"))
}

// view is the state before a command, as far as the cases need it.
type view struct {
	status map[fencing.Resource]engine.Status
	open   bool // the session of the command
	topologyView
}

func (c *cases) before(p *comparison, command machine.Command) view {
	v := view{status: map[fencing.Resource]engine.Status{}, topologyView: topologyOf(p.machine)}
	for _, name := range names {
		v.status[name] = p.machine.Inspect(name)
	}
	if open, ok := command.(*machine.OpenSession); ok {
		v.open = p.machine.SessionInfo(open.Session).Incarnation != 0
	}
	return v
}

// holds reports whether a lock is held with a kind.
func (v view) holds(name fencing.Resource, kind engine.Kind) bool {
	holders := v.status[name].Holders
	return len(holders) > 0 && holders[0].Kind == kind
}

// find returns the party of an attempt, and whether it holds.
func (v view) find(a requestID) (party engine.Party, holds, found bool) {
	is := func(p engine.Party) bool { return p.Session == a.Session && p.Nonce == a.Nonce }
	for _, s := range v.status {
		if i := slices.IndexFunc(s.Holders, is); i >= 0 {
			return s.Holders[i], true, true
		}
		if i := slices.IndexFunc(s.Waiters, is); i >= 0 {
			return s.Waiters[i], false, true
		}
	}
	return engine.Party{}, false, false
}

func (c *cases) after(p *comparison, command machine.Command, v view, result machine.Result, events []machine.Event) {
	c.commands++
	if a, ok := command.(*machine.Acquire); ok {
		c.hit(result.Code == machine.NoSession && p.machine.SessionInfo(a.Session).TTL != 0,
			"session: request of an earlier incarnation")
	}
	granted := c.grants(p, v, events)
	switch command := command.(type) {
	case *machine.Acquire:
		c.acquire(p, command, v, result)
	case *machine.Release:
		attempt := requestID{Session: command.Session, Nonce: command.Nonce}
		_, holds, found := v.find(attempt)
		c.hit(found && holds, "release: of a holder")
		c.hit(found && !holds, "release: of a waiter")
		c.hit(found && !holds && granted > 0, "release: of a waiter unblocks others")
		c.hit(result.Code == machine.Ended && p.outcomes[attempt] == "", "release: before its acquire")
		c.hit(result.Code == machine.Ended && p.outcomes[attempt] == released, "release: twice")
	case *machine.OpenSession:
		c.hit(v.open, "session: opened again while open")
		c.hit(!v.open && p.past[command.Session], "session: opened again after its end")
	case *machine.EndRequests:
		c.end(p, v, result, events, granted)
	case *machine.EndSessions:
		c.hit(len(events) > 0, "session: all ended")
	case *machine.CloseSession:
		c.session(command.Session, v, result)
	case *machine.Expire:
		c.session(command.Session, v, result)
		c.hit(result.Code == machine.Done, "expire: done")
		c.hit(result.Code == machine.NoSession, "expire: no session")
		c.hit(result.Code == machine.Outdated && command.Generation < p.machine.Generation(),
			"expire: of an older generation")
	case *machine.Break:
		c.hit(result.Code == machine.Done, "break: done")
		c.hit(result.Code == machine.Done && p.machine.Ending(events[0].Incarnation), "break: of an ended session")
		c.hit(result.Code == machine.Done && len(events[0].Resources) > 1, "break: of a set")
		c.hit(result.Code == machine.NotHeld && len(v.status[command.Resource].Holders) > 0, "break: wrong token")
		c.hit(result.Code == machine.NotHeld && v.hasToken(command.Token), "break: token of another lock")
	case *machine.EndDelay:
		c.hit(result.Code == machine.Done, "delay: ended")
		c.hit(result.Code == machine.Done && granted > 0, "delay: ended and a waiter granted")
		delayed := v.status[command.Resource].Delayed
		c.hit(delayed && result.Code == machine.Outdated && command.Generation == p.machine.Generation(),
			"delay: stale number")
		c.hit(delayed && result.Code == machine.Outdated && command.Generation < p.machine.Generation(),
			"delay: stale generation")
	case *machine.RaiseFloor:
		c.hit(result.Code == machine.Done && command.By > 0, "floor: raised")
		c.hit(result.Code == machine.Exhausted, "floor: exhausted")
	default:
		c.topology(p, command, v.topologyView, result)
	}
	c.delays(p, v, events)
	p.remember(command, result, events)
}

// grants counts the cases of the grants of one command, and returns their number.
func (c *cases) grants(p *comparison, v view, events []machine.Event) int {
	granted, readers := 0, 0
	var on []fencing.Resource // the first resource of each grant that had waited
	for _, e := range events {
		if e.Type != machine.EventGranted {
			continue
		}
		granted++
		c.hit(e.Slot > 1, "grant: slot 2 or higher")
		party, _, waited := v.find(requestID{Session: e.Session, Nonce: e.Nonce})
		if !waited {
			continue
		}
		c.hit(true, "grant: after waiting")
		c.hit(len(e.Resources) > 1, "grant: of a set after waiting")
		if party.Kind == engine.Shared {
			readers++
		}
		on = append(on, e.Resources[0])
	}
	slices.Sort(on)
	c.hit(readers > 1, "grant: of several readers at once")
	c.hit(len(slices.Compact(on)) > 1, "grant: on two freed resources")
	c.hit(p.machine.LastToken() == fencing.MaxToken && len(slices.Concat(waitersEverywhere(p)...)) > 0,
		"grant: none, tokens exhausted")
	return granted
}

func (c *cases) acquire(p *comparison, command *machine.Acquire, v view, result machine.Result) {
	q := command.Request
	attempt := requestID{Session: command.Session, Nonce: q.Nonce}
	party, holds, found := v.find(attempt)
	c.hit(found && holds, "copy: of a holder")
	c.hit(found && !holds, "copy: of a waiter")
	c.hit(found && party.Kind != q.Kind, "copy: with other contents")
	c.hit(result.Code == machine.NoSession, "acquire: no session")
	c.hit(result.Code == machine.Exhausted, "acquire: exhausted")
	c.hit(result.Code == machine.Held, "acquire: held")
	c.hit(result.Code == machine.OtherPermits && v.holds(q.Resources[0], engine.Permit), "acquire: other permits held")
	c.hit(result.Code == machine.OtherPermits && !v.holds(q.Resources[0], engine.Permit),
		"acquire: other permits waited for")
	c.hit(result.Code == machine.WrongMode, "acquire: wrong mode")
	c.hit(result.Code == machine.WrongMode && result.Resource != q.Resources[0], "acquire: set of two modes")
	c.hit(result.Code == machine.Migrating, "acquire: migrating")
	c.hit(result.Code == machine.NotReady, "acquire: not ready")
	c.hit(result.Code == machine.Migrating && result.Resource != q.Resources[0], "acquire: set with a migrating lock")
	if result.Code == machine.Ended {
		c.hit(p.outcomes[attempt] == released, "late acquire: after its release")
		c.hit(p.outcomes[attempt] == refused, "late acquire: after it was refused")
		c.hit(p.outcomes[attempt] == wasBroken, "late acquire: after it was broken")
		c.hit(p.outcomes[attempt] == unknown, "late acquire: after an early release")
	}
	if found {
		return
	}
	c.hit(result.Code == machine.Granted, "acquire: granted at once")
	c.hit(p.outcomes[attempt] == moved && (result.Code == machine.Granted || result.Code == machine.Queued),
		"acquire: repeated after a migration")
	c.hit(result.Code == machine.Granted && p.pastGrants[attempt], "late acquire: granted again in a session opened again")
	if result.Code != machine.Queued {
		return
	}
	c.hit(true, "acquire: queued "+q.Kind.String())
	c.hit(len(q.Resources) > 1, "acquire: queued set")
	s := v.status[q.Resources[0]]
	if len(s.Holders) == 0 || len(s.Waiters) == 0 || len(q.Resources) > 1 || s.Delayed {
		return
	}
	c.hit(q.Kind == engine.Shared && s.Holders[0].Kind == engine.Shared,
		"acquire: reader waits behind a writer that waits")
}

func (c *cases) session(id engine.SessionID, v view, result machine.Result) {
	if result.Code != machine.Done {
		return
	}
	of := func(p engine.Party) bool { return p.Session == id }
	holds, waits := false, false
	for _, s := range v.status {
		h, w := slices.ContainsFunc(s.Holders, of), slices.ContainsFunc(s.Waiters, of)
		c.hit(h && w, "session: ended with its own waiter behind its own holder")
		holds, waits = holds || h, waits || w
	}
	c.hit(holds && waits, "session: ended with holders and waiters")
}

// end counts the cases of an EndRequests.
func (c *cases) end(p *comparison, v view, result machine.Result, events []machine.Event, granted int) {
	ended, cancelled := map[uint64]bool{}, 0
	c.hit(len(events) > 0 && events[0].Type == machine.EventGranted, "migration: a waiter granted after its lock left")
	for _, e := range events {
		if e.Type == machine.EventCancelled && p.machine.SessionInfo(e.Session).Incarnation == e.Incarnation {
			c.hit(true, "migration: waiters cancelled")
			c.hit(p.machine.Count().Waiters > 0 && result.Code == machine.Ending, "migration: waiters left")
			cancelled++
			continue
		}
		switch e.Type {
		case machine.EventGranted:
			c.hit(cancelled > 0, "migration: a cancelled waiter unblocks others")
		case machine.EventReleased, machine.EventExpired, machine.EventCancelled:
			ended[e.Incarnation] = true
			now := p.machine.SessionInfo(e.Session).Incarnation
			c.hit(now != 0 && now != e.Incarnation, "end: of an earlier incarnation")
		case machine.EventBroken:
			c.hit(true, "migration: holders broken")
			c.hit(slices.ContainsFunc(p.machine.Migrations(), func(mv machine.Migration) bool {
				return mv.Now && mv.Holders > 0
			}), "migration: holders left")
		case machine.EventOpened:
			c.hit(true, "migration: delay ended")
		}
	}
	c.hit(result.Code == machine.Ending, "end: requests left")
	c.hit(len(ended) > 1, "end: requests of two sessions")
	c.hit(granted > 0, "end: a waiter granted")
	c.hit(len(events) == 0 && result.Code == machine.Done, "end: nothing to end")
	for _, s := range v.status {
		c.hit(len(s.Holders) == 0 && !s.Delayed && len(s.Waiters) > 1, "end: a waiter behind one of an ended session")
	}
}

func (c *cases) delays(p *comparison, v view, events []machine.Event) {
	for _, e := range events {
		if e.Type == machine.EventDelayed {
			c.hit(true, "delay: begun")
			c.hit(len(p.machine.Inspect(e.Resources[0]).Holders) > 0, "delay: begun beside holders")
			c.hit(v.status[e.Resources[0]].Delayed, "delay: begun during a delay")
		}
	}
}

func (v view) hasToken(token fencing.Token) bool {
	for _, s := range v.status {
		if slices.ContainsFunc(s.Holders, func(p engine.Party) bool { return p.Token == token }) {
			return true
		}
	}
	return false
}

func waitersEverywhere(p *comparison) (all [][]engine.Party) {
	for _, name := range names {
		all = append(all, p.machine.Inspect(name).Waiters)
	}
	return all
}

package model_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// The commands that change policies, migrations and the fleet, and the cases that they
// must reach.

// fleets share members. The last one is empty.
var fleets = []engine.Fleet{
	{Namespace: "n", Addresses: []string{"r1:1", "r2:1", "r3:1"}, MaxTTL: time.Minute},
	{Namespace: "n", Addresses: []string{"r3:1", "r1:1", "r2:1"}, MaxTTL: time.Minute}, // the same
	{Namespace: "n", Addresses: []string{"r3:1"}, MaxTTL: time.Minute},
	{Namespace: "n", Addresses: []string{"r3:1"}, MaxTTL: time.Hour},
	{},
}

var fleetMembers = []string{"r1:1", "r2:1", "r3:1", "r4:1"}

// version draws a version, mostly a valid one: the current one, or 0 for any.
func (g *generator) version(t *rapid.T) uint64 {
	switch draw(t, 4, "version") {
	case 0:
		return uint64(draw(t, int(min(g.machine.Version(), 100))+3, "other version"))
	case 1, 2:
		return 0
	}
	return g.machine.Version()
}

func (g *generator) policy(t *rapid.T) machine.Command {
	if draw(t, 3, "aimed") == 0 {
		if c := g.aimedPolicy(t); c != nil {
			return c
		}
	}
	version, prefix := g.version(t), pick(t, prefixes, "prefix")
	now := draw(t, 4, "now") == 0
	if draw(t, 3, "delete") == 0 {
		return &machine.DeletePolicy{Prefix: prefix, Version: version, Now: now}
	}
	p := engine.Policy{Prefix: prefix, Mode: pick(t, []engine.Mode{engine.Correctness, engine.Correctness,
		engine.Efficiency}, "mode")}
	if p.Mode == engine.Correctness {
		p.LockDelay = pick(t, []time.Duration{0, time.Second, time.Minute}, "delay")
	} else {
		p.TTL = pick(t, []time.Duration{0, 0, time.Minute}, "ttl")
	}
	return &machine.SetPolicy{Version: version, Policy: p, Now: now}
}

// aimedPolicy migrates a lock that a set waits for or that has several holders, or changes the
// policy above a deletion in progress. It returns nil if there is none of them.
func (g *generator) aimedPolicy(t *rapid.T) machine.Command {
	for _, mv := range g.machine.Migrations() {
		if mv.Delete && mv.Prefix != "" && coin.Draw(t, "above") {
			return &machine.SetPolicy{Policy: engine.Policy{Prefix: mv.Prefix[:len(mv.Prefix)-1], Mode: mv.From}, Now: true}
		}
	}
	waits := map[requestID]fencing.Resource{}
	for _, name := range g.machine.List("", "", math.MaxInt) {
		status := g.machine.Inspect(name)
		if len(status.Holders) > 1 && coin.Draw(t, "several holders") {
			return &machine.SetPolicy{Policy: engine.Policy{Prefix: string(status.Resource), Mode: engine.Efficiency}, Now: true}
		}
		for _, w := range status.Waiters {
			attempt := requestID{Session: w.Session, Nonce: w.Nonce}
			if other := waits[attempt]; other != "" {
				ofSet := []fencing.Resource{other, status.Resource}
				return &machine.SetPolicy{Policy: engine.Policy{Prefix: string(pick(t, ofSet, "of the set")),
					Mode: engine.Efficiency}}
			}
			waits[attempt] = status.Resource
		}
	}
	return nil
}

// move draws a command about a migration in progress, if there is one.
func (g *generator) move(t *rapid.T) machine.Command {
	moves := g.machine.Migrations()
	if len(moves) == 0 || draw(t, 12, "none") == 0 {
		if prefix := pick(t, prefixes, "prefix"); coin.Draw(t, "abort") {
			return &machine.AbortMigration{Prefix: prefix}
		} else {
			return &machine.FinishMigration{Prefix: prefix, Version: 1 + uint64(draw(t, int(min(g.machine.Version(), 100))+2,
				"version"))}
		}
	}
	mv := pick(t, moves, "move")
	if g.sweepGrants(mv.Prefix) && coin.Draw(t, "early") {
		return &machine.AbortMigration{Prefix: mv.Prefix}
	}
	switch draw(t, 8, "what") {
	case 0:
		return &machine.AbortMigration{Prefix: mv.Prefix}
	case 1:
		return &machine.SetPolicy{Policy: engine.Policy{Prefix: mv.Prefix, Mode: pick(t, []engine.Mode{mv.From, mv.To, mv.To},
			"mode")}, Now: coin.Draw(t, "now")}
	case 2:
		return &machine.DeletePolicy{Prefix: mv.Prefix, Now: coin.Draw(t, "now")}
	case 3:
		return &machine.FinishMigration{Prefix: mv.Prefix, Version: mv.Version + 1}
	}
	return &machine.FinishMigration{Prefix: mv.Prefix, Version: mv.Version, Granted: g.granted(t)}
}

// sweepGrants reports whether there is a waiter for a free lock, which the sweep would grant if its
// migration were aborted now.
func (g *generator) sweepGrants(prefix string) bool {
	return slices.ContainsFunc(g.machine.List(prefix, "", math.MaxInt), func(name fencing.Resource) bool {
		status := g.machine.Inspect(name)
		return len(status.Waiters) > 0 && len(status.Holders) == 0 && !status.Delayed
	})
}

func (g *generator) fleet(t *rapid.T) machine.Command {
	e := g.machine.Efficiency()
	switch what := draw(t, 16, "what"); {
	case what < 3 && e.NextVersion != 0 && coin.Draw(t, "same"):
		return &machine.SetFleet{Fleet: e.Next, Now: coin.Draw(t, "now"), Force: coin.Draw(t, "force")}
	case what < 3:
		return &machine.SetFleet{Fleet: pick(t, fleets, "fleet"), Version: g.version(t), Now: coin.Draw(t, "now"),
			Force: coin.Draw(t, "force")}
	case what < 5:
		return &machine.FinishFleet{Version: 1 + max(e.NextVersion, 1) - pick(t, []uint64{1, 1, 1, 0}, "older")}
	case what < 9:
		return g.life(t, e)
	case what < 10:
		to := pick(t, []fencing.Token{e.Ceiling + 1<<32, 1 << 32, fencing.MaxToken - 3<<32, fencing.MaxToken}, "ceiling")
		if !g.profile.almostExhausted {
			to = min(to, e.Ceiling+1<<33)
		}
		return &machine.RaiseCeiling{To: min(to, fencing.MaxToken)}
	case what < 12 && !e.Fleet.IsZero(): // a member reconciles the log with nodes
		c := &machine.Reconcile{At: g.version(t), Version: uint64(draw(t, 20, "version")),
			Ceiling: pick(t, []fencing.Token{0, 0, 1 << 33, e.Ceiling}, "ceiling")}
		if coin.Draw(t, "lives") {
			c.Lives, c.Past = make([]string, len(e.Fleet.Addresses)), make([]string, len(e.Fleet.Addresses))
			for i := range c.Lives {
				c.Lives[i] = pick(t, []string{"", fmt.Sprint("old ", i)}, "life")
				c.Past[i] = pick(t, []string{"?", c.Lives[i]}, "past")
			}
		}
		return c
	case what < 14:
		return &machine.FinishReconcile{Version: max(1,
			pick(t, []uint64{e.Version, e.Version, e.ReconcileVersion, e.Version + 1}, "version"))}
	case what < 15 && draw(t, 3, "restored") == 0:
		if coin.Draw(t, "known") {
			return &machine.MarkRestored{Version: e.Version, Ceiling: e.Ceiling, Fleet: pick(t, fleets, "fleet"), FleetSet: true,
				FleetUnused: e.Unused()}
		}
		return &machine.MarkRestored{Version: e.Version, Ceiling: e.Ceiling}
	}
	return &machine.SetMemberAPI{ID: pick(t, []string{"n1", "n2"}, "id"), Address: pick(t, []string{"a:1", "b:1", ""},
		"address")}
}

// life draws a command about the life of a Redis node.
func (g *generator) life(t *rapid.T, e machine.Efficiency) machine.Command {
	member, name := pick(t, fleetMembers, "member"), fmt.Sprint("life ", draw(t, 6, "life"))
	switch draw(t, 7, "of a life") {
	case 0, 1:
		older := pick(t, []uint64{0, uint64(draw(t, int(min(e.Version, 20))+1, "older"))}, "any")
		return &machine.CloseSets{Version: 1 + e.Version - older, Granted: g.granted(t)}
	case 2:
		for i, l := range e.Lives {
			if l.Name != "" && coin.Draw(t, "named") {
				member, name = e.Fleet.Addresses[i], l.Name
			}
		}
		return &machine.FinishRecovery{Member: member, Life: name}
	}
	return &machine.NameLife{Member: member, Life: name, Version: g.version(t)}
}

// granted draws an upper bound of the tokens that Redis has granted.
func (g *generator) granted(t *rapid.T) fencing.Token {
	ceiling := g.machine.Ceiling()
	return pick(t, []fencing.Token{fencing.None, 1, ceiling / 2, ceiling, fencing.MaxToken}, "granted")
}

// interestingTopology lists further cases that the random runs must reach.
var interestingTopology = []string{
	"acquire: migrating", "acquire: set with a migrating lock", "acquire: repeated after a migration",
	"acquire: not ready",
	"policy: set", "policy: outdated", "policy: deleted", "policy: not there", "policy: refused, the parent is migrating",
	"migration: begun to efficiency", "migration: begun to correctness", "migration: begun by a deletion",
	"migration: begun under another",
	"migration: a prefix left another one", "migration: waiters cancelled",
	"migration: a cancelled waiter unblocks others", "migration: waiters left",
	"migration: a waiter granted after its lock left", "migration: holders broken", "migration: holders left",
	"migration: delay ended",
	"migration: repeated", "migration: now set later", "migration: other policy for the same mode",
	"migration: other direction refused", "migration: exhausted",
	"migration: aborted", "migration: aborted, keeps a policy", "migration: finished to efficiency",
	"migration: finished to correctness", "migration: finished, token raised",
	"migration: finished a deletion", "migration: finished a deletion, keeps a policy", "migration: busy",
	"migration: other version", "migration: finished before", "migration: not ready",
	"fleet: at once", "fleet: another before it was ready", "fleet: change begun", "fleet: now set later",
	"fleet: canceled", "fleet: finished", "fleet: outdated",
	"life: named", "life: older set", "life: votes", "sets: closed", "sets: closed, with a floor",
	"sets: closed, with a step", "life: again", "life: not ready", "life: other fleet", "life: exhausted",
	"ceiling: raised", "ceiling: not lowered",
	"reconcile: fresh", "reconcile: jump", "reconcile: not needed", "reconcile: exhausted", "reconcile: finished",
	"reconcile: other version", "restored: was ready",
	"member: set", "member: removed",
}

// topologyView is the state before a command, as far as these cases need it.
type topologyView struct {
	machine.Efficiency
	last     fencing.Token
	policies []engine.Policy
}

func topologyOf(m *machine.Machine) topologyView {
	policies, _ := m.Policies()
	return topologyView{Efficiency: m.Efficiency(), last: m.LastToken(), policies: policies.All()}
}

func (v topologyView) move(prefix string) *machine.Migration {
	for i := range v.Migrations {
		if v.Migrations[i].Prefix == prefix {
			return &v.Migrations[i]
		}
	}
	return nil
}

func (v topologyView) has(prefix string) bool {
	for _, p := range v.policies {
		if p.Prefix == prefix {
			return true
		}
	}
	return false
}

// topology counts the cases of a command that changes the topology.
func (c *cases) topology(p *comparison, command machine.Command, v topologyView, result machine.Result) {
	now := topologyOf(p.machine)
	done, changed := result.Code == machine.Done, now.Version != v.Version
	switch command := command.(type) {
	case *machine.SetPolicy:
		c.hit(done, "policy: set")
		c.changedPolicy(command.Policy.Prefix, v, now, result)
		old := v.move(command.Policy.Prefix)
		c.hit(old != nil && done && !changed, "migration: repeated")
		c.hit(old != nil && done && changed && old.Now == now.move(command.Policy.Prefix).Now,
			"migration: other policy for the same mode")
	case *machine.DeletePolicy:
		c.hit(done, "policy: deleted")
		c.hit(result.Code == machine.NotHeld, "policy: not there")
		c.hit(result.Code == machine.Migrating && v.move(command.Prefix) == nil, "policy: refused, the parent is migrating")
		c.changedPolicy(command.Prefix, v, now, result)
	case *machine.AbortMigration:
		c.hit(done, "migration: aborted")
		c.hit(done && v.move(command.Prefix).Version > 0 && now.has(command.Prefix), "migration: aborted, keeps a policy")
	case *machine.FinishMigration:
		c.finished(command, v, now, result)
	case *machine.SetFleet:
		c.hit(result.Code == machine.Outdated, "fleet: outdated")
		c.hit(changed && v.NextVersion == 0 && now.NextVersion == 0 && v.Fleet.IsZero(), "fleet: at once")
		c.hit(changed && v.NextVersion == 0 && now.NextVersion == 0 && !v.Fleet.IsZero(),
			"fleet: another before it was ready")
		c.hit(changed && now.NextVersion == now.Version, "fleet: change begun")
		c.hit(changed && now.NextVersion != 0 && now.NextVersion == v.NextVersion, "fleet: now set later")
		c.hit(changed && v.NextVersion != 0 && now.NextVersion == 0, "fleet: canceled")
	case *machine.FinishFleet:
		c.hit(changed, "fleet: finished")
	case *machine.NameLife:
		c.hit(changed, "life: named")
		c.hit(done && !changed, "life: again")
		c.hit(changed && len(now.Open) > len(v.Open), "life: older set")
		c.hit(result.Code == machine.NotReady, "life: not ready")
		c.hit(result.Code == machine.Outdated, "life: other fleet")
		c.hit(result.Code == machine.Exhausted, "life: exhausted")
	case *machine.CloseSets:
		c.hit(len(now.Open) < len(v.Open), "sets: closed")
		c.hit(slices.ContainsFunc(now.Lives, func(l machine.Life) bool {
			return l.Floor != 0 && !slices.Contains(v.Lives, l)
		}), "sets: closed, with a floor")
		c.hit(now.Ceiling > v.Ceiling, "sets: closed, with a step")
	case *machine.FinishRecovery:
		c.hit(done, "life: votes")
	case *machine.RaiseCeiling:
		c.hit(now.Ceiling > v.Ceiling, "ceiling: raised")
		c.hit(command.To < v.Ceiling, "ceiling: not lowered")
	case *machine.Reconcile:
		c.hit(done && now.last == v.last, "reconcile: fresh")
		c.hit(done && now.last > v.last, "reconcile: jump")
		c.hit(result.Code == machine.Outdated, "reconcile: not needed")
		c.hit(result.Code == machine.Exhausted, "reconcile: exhausted")
	case *machine.FinishReconcile:
		c.hit(changed, "reconcile: finished")
		c.hit(result.Code == machine.Outdated && v.ReconcileVersion != 0, "reconcile: other version")
	case *machine.MarkRestored:
		c.hit(v.Ready, "restored: was ready")
	case *machine.SetMemberAPI:
		c.hit(command.Address != "", "member: set")
		c.hit(command.Address == "", "member: removed")
	}
}

// changedPolicy counts the migrations that a policy began or met.
func (c *cases) changedPolicy(prefix string, v, now topologyView, result machine.Result) {
	old, mv := v.move(prefix), now.move(prefix)
	c.hit(result.Code == machine.Outdated, "policy: outdated")
	c.hit(result.Code == machine.Migrating && old != nil, "migration: other direction refused")
	c.hit(result.Code == machine.Exhausted, "migration: exhausted")
	c.hit(old != nil && mv != nil && !old.Now && mv.Now, "migration: now set later")
	if result.Code != machine.Done {
		return
	}
	above := v.movesAbove(prefix)
	c.hit(mv == nil && above && !v.has(prefix), "migration: a prefix left another one")
	if mv == nil {
		return
	}
	if old == nil {
		c.hit(mv.To == engine.Efficiency, "migration: begun to efficiency")
		c.hit(mv.To == engine.Correctness, "migration: begun to correctness")
		c.hit(mv.Delete, "migration: begun by a deletion")
		c.hit(above, "migration: begun under another")
	}
}

// movesAbove reports whether the policy of the next shorter prefix is migrating.
func (v topologyView) movesAbove(prefix string) bool {
	for _, p := range v.policies { // the longest prefix first
		if len(p.Prefix) < len(prefix) && prefix[:len(p.Prefix)] == p.Prefix {
			return p.Next != engine.AnyMode
		}
	}
	return false
}

func (c *cases) finished(command *machine.FinishMigration, v, now topologyView, result machine.Result) {
	mv := v.move(command.Prefix)
	c.hit(result.Code == machine.Busy, "migration: busy")
	c.hit(result.Code == machine.Outdated, "migration: other version")
	c.hit(result.Code == machine.NotReady, "migration: not ready")
	if result.Code != machine.Done {
		return
	}
	c.hit(mv == nil, "migration: finished before")
	if mv == nil {
		return
	}
	c.hit(mv.To == engine.Efficiency, "migration: finished to efficiency")
	c.hit(mv.To == engine.Correctness, "migration: finished to correctness")
	c.hit(now.last > v.last, "migration: finished, token raised")
	c.hit(mv.Delete, "migration: finished a deletion")
	c.hit(mv.Delete && now.has(command.Prefix), "migration: finished a deletion, keeps a policy")
}

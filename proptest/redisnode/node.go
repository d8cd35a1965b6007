package redisnode

import (
	"maps"
	"slices"
	"strings"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// Node is a Redis server with the data of its lives. A restart begins a new life, which
// finds the surviving data of former ones.
type Node struct {
	life   string
	latest string // the latest life that was initialised
	data   map[string]*data
}

// data is the keys of one life.
type data struct {
	state State
	locks map[fencing.Resource]*Record
}

// New returns a server without data, in the given life.
func New(life string) *Node { return &Node{life: life, data: map[string]*data{}} }

// Clone returns a copy, such as a snapshot on disk.
func (n *Node) Clone() *Node {
	c := *n
	c.data = map[string]*data{}
	for name, d := range n.data {
		copied := &data{state: d.state, locks: map[fencing.Resource]*Record{}}
		for resource, r := range d.locks {
			record := *r
			record.Waiters = slices.Clone(r.Waiters)
			copied.locks[resource] = &record
		}
		c.data[name] = copied
	}
	return &c
}

// Restart begins a new life with the current data. Use Clone or New for a restart with
// older data or none.
func (n *Node) Restart(life string) { n.life = life }

// Life returns the name of the current life.
func (n *Node) Life() string { return n.life }

// State returns the state of the node in the current life.
func (n *Node) State() State { return n.now().state }

// Record returns the record of a lock in the current life.
func (n *Node) Record(resource fencing.Resource) Record {
	if r := n.now().locks[resource]; r != nil {
		return *r
	}
	return Record{}
}

func (n *Node) now() *data {
	d := n.data[n.life]
	if d == nil {
		d = &data{locks: map[fencing.Resource]*Record{}}
		n.data[n.life] = d
	}
	return d
}

// with runs a script on records and drops empty ones.
func (n *Node) with(resources []fencing.Resource, script func(locks []*Record)) {
	d := n.now()
	var locks []*Record
	for _, resource := range resources {
		if d.locks[resource] == nil {
			d.locks[resource] = new(Record)
		}
		locks = append(locks, d.locks[resource])
	}
	script(locks)
	for _, resource := range resources {
		if r := d.locks[resource]; r.Token == fencing.None && r.Released == "" && r.Broken == "" && !r.Waiting &&
			len(r.Waiters) == 0 {
			delete(d.locks, resource)
		}
	}
}

// Acquire runs acquire.lua.
func (n *Node) Acquire(now int64, resources []fencing.Resource, c Call) (reply Reply) {
	n.with(resources, func(locks []*Record) { reply = n.now().state.Acquire(now, locks, &c) })
	return reply
}

// Raise runs raise.lua.
func (n *Node) Raise(now int64, resources []fencing.Resource, c Call) (reply Reply) {
	n.with(resources, func(locks []*Record) { reply = n.now().state.Raise(now, locks, &c) })
	return reply
}

// Renew runs renew.lua.
func (n *Node) Renew(now int64, resources []fencing.Resource, c Call) (reply Reply) {
	n.with(resources, func(locks []*Record) { reply = n.now().state.Renew(now, locks, &c) })
	return reply
}

// Release runs release.lua.
func (n *Node) Release(now int64, resources []fencing.Resource, e End) (woken []Waiter, reply Reply) {
	n.with(resources, func(locks []*Record) { woken, reply = n.now().state.Release(now, locks, e) })
	return woken, reply
}

// Leave runs leave.lua. It returns how many queues it removed the waiter from.
func (n *Node) Leave(now int64, resources []fencing.Resource, waiter string) (removed int) {
	n.with(resources, func(locks []*Record) {
		for _, r := range locks {
			before := len(r.queue(now))
			r.leave(now, waiter)
			removed += before - len(r.Waiters)
		}
	})
	return removed
}

// Advance runs advance.lua.
func (n *Node) Advance(version uint64, fleet string, floor, ceiling fencing.Token, successor string) Reason {
	return n.now().state.Advance(version, fleet, floor, ceiling, successor)
}

// Join runs join.lua.
func (n *Node) Join(now int64, j Join) (reason Reason, waited int64) {
	return n.now().state.PutJoin(now, j)
}

// Reserve runs reserve.lua: a voter stores the floor in its state, an empty node in the
// state of its former life. With a version, a node without any state stores it in the
// state of a former life with the name 0.
func (n *Node) Reserve(fleet string, floor fencing.Token, version uint64) Reason {
	s := &n.now().state
	latest := n.data[n.latest]
	if !s.Voter && latest != nil {
		s = &latest.state
	}
	if !s.Voter && version != 0 {
		n.latest = "0"
		n.data["0"] = &data{locks: map[fencing.Resource]*Record{},
			state: State{Voter: true, Version: version, Fleet: fleet, Max: floor, Floor: floor, Ceiling: fencing.MaxToken}}
		return Accepted
	}
	return s.Reserve(fleet, floor)
}

// Init runs init.lua.
func (n *Node) Init(now int64, r Range) Reply {
	r.Reserved = fencing.None
	latest := n.data[n.latest]
	if latest != nil && latest.state.Voter {
		r.Reserved = latest.state.Floor
	}
	reply := n.now().state.Init(now, &r)
	if reply.Reason == Accepted {
		if n.latest != n.life && latest != nil {
			latest.state = State{} // the former life
		}
		n.latest = n.life
	}
	return reply
}

// Report runs report.lua. waited is the time since the quarantine of the node began, and
// joined the time since its last join; they are undefined without a join nonce.
func (n *Node) Report(now int64) (report recovery.Report, join string, waited, joined int64) {
	s := n.now().state
	report = recovery.Report{Reached: true, Server: n.life, Live: s.report()}
	if n.latest != n.life {
		report.FormerServer = n.latest
		if former := n.data[n.latest]; former != nil {
			report.Former = former.state.report()
		}
	}
	return report, s.Join, now - s.Since, now - s.Joined
}

func (s State) report() *recovery.State {
	if !s.Voter {
		return nil
	}
	return &recovery.State{Version: s.Version, Fleet: s.Fleet, Member: s.Member, Max: s.Max, Floor: s.Floor,
		Ceiling: s.Ceiling,
		Join:    s.Initialised, Successor: s.Successor}
}

// canRead returns why a node does not answer a reader that acts under a version.
func (s *State) canRead(version uint64) Reason {
	switch {
	case !s.Voter:
		return Empty
	case s.Version > version:
		return OldVersion
	}
	return Accepted
}

// Inspect runs inspect.lua. It returns the record of a lock and the time that its holder has left.
func (n *Node) Inspect(now int64, resource fencing.Resource, version uint64) (r Record, left int64, reason Reason) {
	if reason := n.now().state.canRead(version); reason != Accepted {
		return Record{}, 0, reason
	}
	r = n.Record(resource)
	r.Waiters = r.queue(now)
	if r.Nonce != "" {
		left = max(0, r.Until-now)
	}
	return r, left, Accepted
}

// List runs list.lua for all locks: those that are held or have waiters, sorted.
func (n *Node) List(now int64, prefix string, version uint64) (resources []fencing.Resource, reason Reason) {
	d := n.now()
	for _, resource := range slices.Sorted(maps.Keys(d.locks)) {
		r := d.locks[resource]
		if strings.HasPrefix(string(resource), prefix) && (r.held(now) || r.Waiting && len(r.queue(now)) > 0) {
			resources = append(resources, resource)
		}
	}
	return resources, d.state.canRead(version)
}

// Sweep runs all steps of sweep.lua: it drops the data of other lives, and the records
// that were not used for longer than idle.
func (n *Node) Sweep(now, idle int64) {
	if n.latest != n.life {
		return
	}
	maps.DeleteFunc(n.data, func(name string, _ *data) bool { return name != n.life })
	for _, r := range n.now().locks {
		if r.Until < now-idle {
			// The queue of waiters has a key of its own.
			*r = Record{Waiters: r.Waiters, WaitersUntil: r.WaitersUntil, Seen: r.Seen}
		}
	}
	n.with(slices.Collect(maps.Keys(n.now().locks)), func([]*Record) {})
}

package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/raftstore/machine"
)

// cluster is the Raft cluster and its operator.
type cluster struct {
	w       *World
	slots   []*slot
	log     *commitLog
	backup  []byte        // an older state
	waiting time.Duration // since when a restored log lacks reports

	complete bool          // the first policies are set
	restored time.Duration // when it was
}

// slot is a host of replicas: a new replica replaces one that lost its data.
type slot struct {
	*process
	replica  *replica
	replicas uint32        // so far
	out      time.Duration // until then it must not be a member
	ordered  bool          // its removal is pending
}

// nextID returns the id of a new replica: its slot, and its number on this slot.
func (s *slot) nextID() uint32 {
	s.replicas++
	return s.replicas<<8 | uint32(s.number)
}

func slotOf(id uint32) int { return int(id & 0xff) }

func newCluster(w *World) *cluster {
	c := &cluster{w: w, log: &commitLog{w: w, until: map[model.Session]time.Duration{}, checker: model.NewLogChecker(),
		lives: map[engine.SessionID]int{}, ended: map[engine.SessionID]bool{},
		keys: map[fencing.Token]property.Attempt{}, holding: map[fencing.Resource]fencing.Token{},
		incarnations: map[engine.SessionID]uint64{}}}
	for i := range w.plan.Nodes {
		p := w.newProcess(fmt.Sprintf("node %d", i+1))
		if p.number != i {
			panic("nodes come first")
		}
		c.slots = append(c.slots, &slot{process: p})
	}
	var members []uint32
	for _, s := range c.slots {
		members = append(members, s.nextID())
	}
	for i, s := range c.slots {
		c.install(s, members[i], members)
	}
	c.log.members = members
	w.after(operatorPause, c.operate)
	return c
}

// install starts a replica with an empty log on a slot.
func (c *cluster) install(s *slot, id uint32, members []uint32) {
	s.replica = &replica{process: s.process, w: c.w, cluster: c, slot: s.number, id: id,
		base: image{members: members, state: machine.New().Snapshot()}}
	s.replica.boot()
}

// servingLeader returns the serving leader of the highest term that is up, or nil.
func (c *cluster) servingLeader() *replica {
	var best *replica
	for _, s := range c.slots {
		r := s.replica
		if !s.down && r.role == leader && r.serving() != nil && (best == nil || r.term > best.term) {
			best = r
		}
	}
	return best
}

// runningLeader returns the serving leader if it is not paused.
func (c *cluster) runningLeader() *replica {
	if r := c.servingLeader(); r != nil && !r.paused {
		return r
	}
	return nil
}

const operatorPause = 2 * time.Second

// operate is the operator: it replaces lost replicas, one change at a time, and takes
// backups.
func (c *cluster) operate() {
	c.w.after(operatorPause, c.operate)
	r := c.runningLeader()
	if r == nil {
		return
	}
	if c.complete && c.w.chance(10) {
		c.backup = r.machine.Snapshot()
	}
	if c.w.plan.Setting == Service && c.complete && c.w.now >= c.w.plan.Late && r.machine.Topology().Fleet.IsZero() {
		r.propose(&machine.SetFleet{Fleet: c.w.fleetOf(c.w.redises[:3]...)}, func(answer) {})
	}
	c.provideFloor(r)
	if r.changing() {
		return
	}
	members := r.members()
	if gone := c.toRemove(members); gone != 0 {
		r.append(entry{data: machine.Encode(), members: without(members, gone)})
		if s := c.slots[slotOf(gone)]; s.replica.id == gone && s.ordered {
			s.ordered = false
			c.w.emit(property.Event{Kind: property.Fault, Who: s.name, Note: ChangeMembers.String()})
		}
		return
	}
	for _, s := range c.slots {
		if !slices.Contains(members, s.replica.id) && s.out <= c.w.now && !s.down {
			r.append(entry{data: machine.Encode(), members: append(slices.Clone(members), s.replica.id)})
			return
		}
	}
}

// toRemove returns a member to remove: one whose data is lost, or one with a pending
// removal if enough others remain; 0 if there is none.
func (c *cluster) toRemove(members []uint32) uint32 {
	for _, id := range members {
		if c.slots[slotOf(id)].replica.id != id {
			return id
		}
	}
	for _, id := range members {
		if c.slots[slotOf(id)].out > c.w.now && len(members) > 2 {
			return id
		}
	}
	return 0
}

func without(members []uint32, id uint32) []uint32 {
	return slices.DeleteFunc(slices.Clone(members), func(m uint32) bool { return m == id })
}

// expendable reports whether a replica may lose its data: the others are a majority of a
// membership that all members know.
func (c *cluster) expendable(s *slot) bool {
	members := c.log.members
	if len(members) < 3 || !slices.Contains(members, s.replica.id) {
		return false
	}
	for _, id := range members {
		r := c.slots[slotOf(id)].replica
		if r.id != id || !slices.Equal(r.members(), members) {
			return false
		}
	}
	return true
}

// restore replaces the state of the cluster by the backup, as production does: the leader
// stops serving, all sessions end, floor, versions and incarnations move above those of
// both states, and the new state is a log entry. With known false, the backup is restored
// to a new cluster, if the guarantees cover that, whose configuration may name the fleet.
func (c *cluster) restore(known, named bool) bool {
	r := c.runningLeader()
	if r == nil || c.backup == nil || r.flight != nil {
		return false
	}
	m, err := machine.Restore(c.backup)
	if err != nil {
		panic(err)
	}
	p := r.machine
	if !known && c.covers(m, p) {
		p = machine.New()
		if fleet := m.Topology().Fleet; named && !fleet.IsZero() {
			p.Apply(&machine.SetFleet{Fleet: fleet})
		}
	}
	c.restored = c.w.now
	present := p.Present()
	present.Order = r.machine.Order()
	if m.StartOver(present, int64(c.w.now/time.Second)).Code != machine.Done {
		panic("the tokens are exhausted")
	}
	r.leadership.restoring, r.leadership.lessor = true, nil
	r.leadership.hub.Abort(engine.ErrUncertain)
	r.append(entry{data: machine.Encode(), restore: m.Snapshot()})
	return true
}

// covers reports whether the guarantees cover a restore to a new cluster. If the backup has a fleet, it must be the
// current one. Only its nodes know later tokens and versions, and they must know the current version: a log that was
// restored and not reconciled has published versions that they do not know. Otherwise nothing may use a fleet that the
// backup does not know, whose servers are therefore stopped, and too many tokens must not have been granted since. The
// versions of a log are ahead of the clock for a few seconds after it was restored.
func (c *cluster) covers(backup, p *machine.Machine) bool {
	fleet := backup.Topology().Fleet
	if !fleet.IsZero() {
		return fleet.Equal(p.Topology().Fleet) && !p.Efficiency().Restored
	}
	for _, name := range c.w.locks {
		mode, err := backup.Topology().ModeOf(name)
		next := max(backup.LastToken(), backup.Ceiling()) + fencing.FloorStep
		if (mode != engine.Efficiency || err != nil) && c.w.granted[name] >= next {
			return false
		}
	}
	if c.w.plan.Outsider || c.w.now-c.restored < 10*time.Second {
		return false
	}
	for _, s := range c.w.redises {
		c.w.crashRedis(s, time.Second, keeps(c.w.rng.IntN(3)))
	}
	return true
}

package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// rejoinInterval is the time after which the join nonce of a node is repeated.
const rejoinInterval = time.Second

// driveNodes brings every node to the goal.
func (d *decision) driveNodes() {
	for i := range d.nodes {
		r, life := d.reports[i], d.state.Lives[i]
		switch d.goal.Next(i, r) {
		case recovery.Advance:
			d.do(Action{Kind: Advance, Node: i, Server: r.Server, Goal: d.goal})
		case recovery.Recover:
			d.recovering = true
			if r.Live != nil && r.Live.Fleet == d.goal.Fleet && r.Live.Version < d.goal.Version {
				// It is in another life, and may be one of an older set.
				d.do(Action{Kind: Advance, Node: i, Server: r.Server, Goal: d.goal})
			}
			d.recover(i)
		case recovery.Nothing:
		}
		if r.Life() == life.Name && life.Pending {
			d.do(Action{Kind: FinishRecovery, Node: i, Life: life.Name})
		}
	}
}

// recover takes the next step for a node that does not vote. The log names its life only
// when the quarantine is over. So a server that keeps restarting does not make new
// versions, and no process still uses the server that had its address before.
func (d *decision) recover(i int) {
	node, life := &d.nodes[i], d.state.Lives[i]
	name := recovery.LifeName(node.Server, node.Joining)
	before := d.servers[d.state.Fleet.Addresses[i]]
	switch {
	case joinVersion(node.Joining) < d.state.ReconcileVersion, // none, or one that this log knows nothing about
		name == life.Name && !life.Pending,    // it voted, and was rolled back with its memory
		before != "" && before != node.Server: // the address leads back to it
		d.do(Action{Kind: Join, Node: i, Server: node.Server})
		return
	case node.Joined >= rejoinInterval, // the quarantine counts while the address leads to this server
		node.Joined < 0: // its clock was set back: only a join starts the quarantine again
		d.do(Action{Kind: Rejoin, Node: i, Server: node.Server, Join: node.Joining})
	}
	switch first := d.first(i); {
	case name == life.Name:
		d.initialise(i, life)
	case node.Quarantine > 0 && !first:
		d.wait("quarantine of Redis node " + d.state.Fleet.Addresses[i] + ", " + text(node.Quarantine) + " left")
	case !slices.ContainsFunc(d.step.Actions, func(a Action) bool {
		return a.Kind == NameLife
	}): // one at a time: it makes a new version
		d.do(Action{Kind: NameLife, Node: i, Life: name, Version: d.state.Version})
	}
}

// first reports whether no lease can have been granted on a node: it needs no quarantine.
func (d *decision) first(i int) bool {
	return !d.state.Ready && !d.state.Restored && d.nodes[i].Former == nil
}

// initialise makes a life vote once no older set of lives can grant.
func (d *decision) initialise(i int, life machine.Life) {
	if len(d.state.Open) > 0 && d.state.Open[0].Version < life.Version {
		d.wait(fmt.Sprintf("a quorum of the Redis nodes to have version %d before node %s votes", life.Version,
			d.state.Fleet.Addresses[i]))
		return
	}
	r := recovery.Range{Join: d.nodes[i].Joining, Version: d.state.Version, Floor: life.Floor, Ceiling: d.state.Ceiling,
		Quarantine: d.state.Fleet.MaxTTL, Successor: d.goal.Successor}
	if d.first(i) {
		r.Quarantine = 0
	}
	d.do(Action{Kind: Initialise, Node: i, Server: d.nodes[i].Server, Range: r})
}

// A set of lives is closed by time if it could not be asked for silentTime, at silentLooks looks in a row, and
// without the reports of a quorum of its lives after silentLooks looks.
const (
	silentTime  = 5 * time.Second
	silentLooks = 3
)

// closeSets removes the oldest sets of lives that cannot grant any more. A set of which
// fewer than a quorum can be asked is closed by the time that the life after it has waited.
func (d *decision) closeSets() {
	a, open, known := Action{Kind: CloseSets}, false, true
	for _, s := range d.state.Open {
		if open = !d.closed(s) || open; open {
			continue
		}
		granted := recovery.Set(s).Granted(d.reports)
		known = known && granted != fencing.None
		a.Version, a.Granted = s.Version+1, max(a.Granted, granted)
	}
	if !known {
		a.Granted = fencing.None
	}
	if a.Version != 0 {
		d.do(a)
	}
}

// closed reports whether a set of lives cannot grant any more. That its lives did not answer
// once is not enough for time to decide, or to do without their reports: an answer may be late.
func (d *decision) closed(s machine.Set) bool {
	closing := d.closing(s)
	if closing == recovery.Open || closing == recovery.Closed && recovery.Set(s).Granted(d.reports) != fencing.None {
		delete(d.silent, s.Version)
		return closing == recovery.Closed
	}
	now := d.silent[s.Version]
	if now.looks++; now.looks == 1 {
		now.since = d.now
	}
	d.silent[s.Version] = now
	return now.looks >= silentLooks && (closing == recovery.Closed || d.now.Since(now.since) >= silentTime)
}

func (d *decision) closing(s machine.Set) recovery.Closing {
	lives := slices.Clone(s.Lives)
	for i, life := range lives {
		node := &d.nodes[i]
		refuses := node.Live == nil || node.Live.Version > s.Version
		if node.Reached && refuses && recovery.ServerOf(life) == node.Server && life != node.Life() &&
			life != recovery.LifeName(node.Server, node.Joining) {
			lives[i] = "" // the server was emptied or rolled back, and this life cannot be initialised again
		}
	}
	return recovery.Set{Version: s.Version, Lives: lives}.Closing(d.reports)
}

// wait records what a recovery waits for.
func (d *decision) wait(reason string) {
	if d.step.Waiting == "" {
		d.step.Waiting = reason
	}
}

// JoinNonce returns a join nonce. It contains the version of the log. A log that was
// restored since can therefore recognise it as a nonce that may have a range that the log
// has forgotten.
func JoinNonce(version uint64, random string) string {
	return strconv.FormatUint(version, 10) + "-" + random
}

// joinVersion returns the version in a join nonce, 0 if it is not one of JoinNonce.
func joinVersion(join string) uint64 {
	text, _, _ := strings.Cut(join, "-")
	version, _ := strconv.ParseUint(text, 10, 64) // 0 with an error
	return version
}

package fleet

import (
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// migrateWithoutFleet completes migrations while there are no Redis nodes, and
// therefore no leases in efficiency mode.
func (d *decision) migrateWithoutFleet() {
	for _, m := range d.state.Migrations {
		if m.Holders > 0 {
			d.step.Migrations[m.Prefix] = holders(m.Holders)
			continue
		}
		d.do(Action{Kind: FinishMigration, Prefix: m.Prefix, Version: m.Version})
	}
}

// migrate completes a migration, or records what it is waiting for.
func (d *decision) migrate(m *machine.Migration) {
	if m.From == engine.Correctness && m.Holders > 0 {
		d.step.Migrations[m.Prefix] = holders(m.Holders)
		return
	}
	goal := recovery.Goal{Version: m.Version, Fleet: d.goal.Fleet, Lives: d.goal.Lives}
	if m.To == engine.Efficiency {
		goal.Floor = d.goal.Floor
	}
	key := change{prefix: m.Prefix, version: m.Version}
	if !goal.Met(d.reports) && d.reached[key].IsZero() {
		d.step.Migrations[m.Prefix] = d.progress(goal.Reached(d.reports))
		return
	}
	left := time.Duration(0)
	if m.From == engine.Efficiency {
		left = d.leasesLeft(key, m.Now)
	}
	if left > 0 {
		d.step.Migrations[m.Prefix] = "leases in efficiency mode to end, " + text(left) + " left"
		return
	}
	d.do(Action{Kind: FinishMigration, Prefix: m.Prefix, Version: m.Version, Granted: goal.Granted(d.reports)})
}

// leasesLeft returns the time until every lease has ended that was granted or renewed
// before a quorum rejected the old version.
func (d *decision) leasesLeft(key change, skip bool) time.Duration {
	if d.reached[key].IsZero() {
		d.reached[key] = d.now
	}
	if skip {
		return 0
	}
	return max(0, d.state.Fleet.MaxTTL-d.now.Since(d.reached[key]))
}

// changeFleet completes a change of the fleet when the old fleet grants no more leases and those that it granted have
// ended. A log that was restored in the middle of a change is reconciled with the old fleet first: the new one cannot
// report what the log has forgotten.
func (d *decision) changeFleet() {
	s := &d.state
	told := 0 // nodes that reject older versions and know their successor
	for i, r := range d.reports {
		if d.goal.Next(i, r) != recovery.Recover && r.Reached && r.Live.Version >= s.NextVersion &&
			r.Live.Successor == d.goal.Successor {
			told++
		}
	}
	met := s.Ready && told >= quorum(d.nodes)
	key := change{version: s.NextVersion, fleet: true}
	if !met && !s.NextForce && !s.Fleet.IsZero() && d.reached[key].IsZero() {
		d.step.Waiting = "the old fleet: " + d.progress(told)
		return
	}
	if left := d.leasesLeft(key, s.NextNow); left > 0 {
		d.step.Waiting = "leases of the old fleet to end, " + text(left) + " left"
		return
	}
	d.do(Action{Kind: FinishFleet, Version: s.NextVersion})
}

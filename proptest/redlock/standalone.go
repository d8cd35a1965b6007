package redlock

import (
	"math/bits"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/redisnode"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// joinStandalone puts a join nonce on an empty node, without a log.
func (s *Search) joinStandalone(w *State, n int) {
	to := &w.Nodes[n]
	to.Join, to.Reporters, to.Top, to.Decided, to.Target, to.Reservers = true, 0, 0, false, 0, 0
}

// reportTo passes the report of node m to the recovery of node n, which runs
// recovery.StandaloneFloor once a quorum has reported.
func (s *Search) reportTo(w *State, n, m int) bool {
	to := &w.Nodes[n]
	floor, ok := recovery.StandaloneFloor([]recovery.Report{w.Nodes[m].report()})
	if !ok {
		return false
	}
	to.Reporters |= 1 << m
	to.Top = max(to.Top, small(floor-recovery.Jump))
	reports := make([]recovery.Report, s.Nodes)
	for i := range reports {
		if to.Reporters>>i&1 == 1 {
			reports[i] = recovery.Report{Reached: true, Live: &recovery.State{Max: large(to.Top)}}
		}
	}
	if floor, ok = recovery.StandaloneFloor(reports); ok {
		to.Decided, to.Target = true, small(floor)
		if s.Broken == NoJump {
			to.Target = to.Top
		}
		to.Reporters, to.Top = 0, 0 // later reports can only raise it
	}
	return true
}

// reserve stores the floor of node n on node m: a voter raises its own floor, an empty
// node the floor of its former life.
func (s *Search) reserve(w *State, n, m int) bool {
	at, target := &w.Nodes[m], w.Nodes[n].Target
	switch {
	case at.Version != 0:
		s.load(at)
		s.state.Advance(1, fleetNames[1], large(target), large(most))
		s.store(at)
	case at.Former:
		at.FormerFloor = max(at.FormerFloor, target)
	default:
		return false
	}
	w.Nodes[n].Reservers |= 1 << m
	return true
}

// ready reports whether a standalone recovery may initialise its node.
func (s *Search) ready(w *State, n int) bool {
	to := &w.Nodes[n]
	if !to.Join || !to.Decided {
		return false
	}
	return s.Broken == NoReserve || bits.OnesCount8(to.Reservers) > s.Nodes/2
}

// initStandalone makes a node a voter, without a log.
func (s *Search) initStandalone(w *State, n int) {
	to := &w.Nodes[n]
	s.load(to)
	reserved := fencing.None
	if to.Former {
		reserved = large(to.FormerFloor)
	}
	s.state.Init(0, &redisnode.Range{Join: "join", Version: 1, Fleet: fleetNames[1], Floor: large(to.Target), Ceiling: large(most), Reserved: reserved})
	s.store(to)
	to.Former, to.FormerVersion, to.FormerMax, to.FormerFloor, to.FormerCeiling = false, 0, 0, 0, 0
	to.Decided, to.Target, to.Reservers = false, 0, 0
}

package raftstore

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/machine"
)

// changeLog logs the changes of leadership that concern this node. The leader logs its
// election, a former leader that it no longer leads. Followers log the new leader at the
// level debug, so that each change has one line in the logs of a cluster.
type changeLog struct {
	mu     sync.Mutex
	former string // the last leader before this node led, empty if unknown
	term   uint64 // of the last line about the election of this node
}

// elected logs that this node leads and serves. A node that serves again in the same term,
// such as after a restored snapshot, logs nothing.
func (n *Node) elected(generation uint64) {
	term := n.raft.CurrentTerm()
	n.changes.mu.Lock()
	former, again := n.changes.former, n.changes.term == term
	n.changes.term = term
	n.changes.mu.Unlock()
	if !again {
		n.logger.Info("became leader", "leader", n.ID(), "term", term, "generation", generation, "former", former)
	}
}

// deposed logs that this node no longer leads.
func (n *Node) deposed(why string) {
	leader, _ := n.Leader()
	n.changes.mu.Lock()
	if leader == "" || leader == n.ID() {
		leader, n.changes.former = "", n.ID()
	} else {
		n.changes.former = leader
	}
	term := n.changes.term
	n.changes.mu.Unlock()
	n.logger.Info("lost leadership", "leader", leader, "term", term, "former", n.ID(), "reason", why)
}

// watchLeaders calls the hook LeaderChanged, and notes which other members lead. Observers run
// on the goroutines of the Raft library, so this must not block.
func (n *Node) watchLeaders() {
	n.raft.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		observed, _ := o.Data.(raft.LeaderObservation)
		leader := string(observed.LeaderID)
		if leader != "" && n.config.Hooks.LeaderChanged != nil {
			n.config.Hooks.LeaderChanged()
		}
		if leader != "" && leader != n.ID() {
			n.changes.mu.Lock()
			n.changes.former = leader
			n.changes.mu.Unlock()
			n.logger.Debug("follows a leader", "leader", leader, "term", n.raft.CurrentTerm())
		}
		return false // there is no channel
	}))
}

// logChange logs a change of the topology, by the leader that committed it.
func (n *Node) logChange(c machine.Command, version uint64) {
	switch c := c.(type) {
	case *machine.SetPolicy:
		n.logger.Info("policy set", "prefix", c.Policy.Prefix, "mode", c.Policy.Mode.String(), "ttl", c.Policy.TTL, "version",
			version)
		n.logMigration(c.Policy.Prefix, version)
	case *machine.DeletePolicy:
		n.logger.Info("policy deleted", "prefix", c.Prefix, "version", version)
		n.logMigration(c.Prefix, version)
	case *machine.AbortMigration:
		n.logger.Info("migration aborted", "prefix", c.Prefix, "version", version)
	case *machine.FinishMigration:
		n.logger.Info("migration finished", "prefix", c.Prefix, "version", version)
	case *machine.SetFleet:
		n.logger.Info("Redis fleet set", "nodes", strings.Join(c.Fleet.Addresses, ","), "namespace", c.Fleet.Namespace,
			"version", version)
	case *machine.NameLife:
		n.logger.Info("Redis node has a new life", "node", c.Member, "version", version)
	case *machine.FinishFleet:
		n.logger.Info("Redis fleet changed", "nodes", strings.Join(n.Topology().Fleet.Addresses, ","), "version", version)
	}
}

// logMigration logs the migration that this version has started, if there is one.
func (n *Node) logMigration(prefix string, version uint64) {
	for _, m := range n.Efficiency().Migrations {
		if m.Prefix == prefix && m.Version == version {
			n.logger.Info("migration started", "prefix", prefix, "from", m.From.String(), "to", m.To.String(), "now", m.Now,
				"version", version)
		}
	}
}

// logEvents returns calls that log the changes of locks at the level debug, on the leader.
// The caller holds the lock of the machine; the calls run without it.
func (n *Node) logEvents(events []machine.Event) (calls []func()) {
	ctx := context.Background()
	if len(events) == 0 || !n.logger.Enabled(ctx, slog.LevelDebug) || !n.Leads() {
		return nil
	}
	for i := range events {
		e := &events[i]
		names := make([]string, len(e.Resources))
		for j, name := range e.Resources {
			names[j] = string(name)
		}
		message, values := e.Type.String(), []slog.Attr{slog.String("resource", strings.Join(names, ",")),
			slog.Uint64("token", uint64(e.Token)),
			slog.String("mode", "correctness"), slog.String("holder", e.Holder), slog.String("user", e.User)}
		calls = append(calls, func() { n.logger.LogAttrs(ctx, slog.LevelDebug, message, values...) })
	}
	return calls
}

package member

import (
	"context"
	"time"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore"
)

// policePause is how often a member looks whether it has policies to set.
const policePause = 500 * time.Millisecond

// police sets the policies of the file when this member begins to lead, and
// after each reload. It asks its own server, which moves locks between modes.
func (m *Member) police(ctx context.Context) {
	tick := time.NewTicker(policePause)
	defer tick.Stop()
	var done uint64 // the generation in which they were set
	for {
		select {
		case <-tick.C:
		case <-m.reloaded:
			done = 0
		case <-ctx.Done():
			return
		}
		generation := m.node.Status().Generation
		if !m.node.Leads() || generation == done {
			continue
		}
		if err := m.setPolicies(ctx); err != nil {
			m.logger.Warn("cannot set the policies of the file", "error", err)
			continue
		}
		done = generation
	}
}

// setPolicies sets those that are not as the file says.
func (m *Member) setPolicies(ctx context.Context) error {
	wanted := *m.policies.Load()
	if len(wanted) == 0 {
		return nil
	}
	present, _, err := m.node.Policies(ctx, raftstore.Linearizable)
	if err != nil {
		return err
	}
	have := map[string]lease.Policy{}
	for _, p := range present.All() {
		have[p.Prefix] = p
	}
	for _, p := range wanted {
		if have[p.Prefix] == p {
			continue
		}
		if err := m.server.SetPolicy(ctx, p); err != nil {
			return err
		}
		m.logger.Info("set a policy", "prefix", p.Prefix, "mode", p.Mode.String())
	}
	return nil
}

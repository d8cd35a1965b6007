package member

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leased-project/leased/lease"
)

// policyInterval is the time between checks whether this member has to set the
// policies.
const policyInterval = 500 * time.Millisecond

// applyPolicies sets the policies of the file when this member becomes the leader,
// and after each reload. Between these, changes by operators stay.
func (m *Member) applyPolicies(ctx context.Context) {
	tick := time.NewTicker(policyInterval)
	defer tick.Stop()
	var done uint64 // the generation in which they were set
	logged := ""
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
			if text := err.Error(); text != logged && ctx.Err() == nil { // once for each reason, since it retries
				logged = text
				m.logger.Warn("could not set the policies of the configuration file; retrying", "error", err)
			}
			continue
		}
		m.compareFleet()
		done, logged = generation, ""
	}
}

// setPolicies sets the policies that differ from the file. It does not touch
// migrations to the mode in the file.
func (m *Member) setPolicies(ctx context.Context) error {
	have := map[string]lease.Policy{}
	for _, p := range m.node.Topology().Policies.All() {
		have[p.Prefix] = migrated(p)
	}
	var failed error
	for _, p := range *m.policies.Load() {
		if present, found := have[p.Prefix]; found && present == p {
			continue
		}
		if _, err := m.node.SetPolicy(ctx, p, 0, false); err != nil {
			failed = errors.Join(failed, fmt.Errorf("set the policy for %q: %w", p.Prefix, err))
			continue
		}
		m.logger.Info("set a policy from the configuration file", "prefix", p.Prefix, "mode", p.Mode.String())
	}
	return failed
}

// migrated returns a policy after its migration.
func migrated(p lease.Policy) lease.Policy {
	if p.Next != lease.AnyMode {
		p.Mode, p.Next = p.Next, lease.AnyMode
	}
	return p
}

// compareFleet warns if the settings name other Redis nodes than the log, which
// takes precedence.
func (m *Member) compareFleet() {
	seed, fleet := m.settings.Fleet(), m.node.Topology().Fleet
	if seed.IsZero() || fleet.IsZero() || seed.Equal(fleet) {
		return
	}
	m.logger.Warn("the Redis nodes in the settings differ from those of the cluster, which take precedence",
		"redis", strings.Join(seed.Addresses, ","), "fleet", strings.Join(fleet.Addresses, ","),
		"hint", "change the fleet with `leased redis fleet set`, or update redis, redis-namespace and redis-max-ttl")
}

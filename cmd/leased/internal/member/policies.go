package member

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/lease"
)

// policyInterval is the time between checks whether this member has to set the
// policies.
const policyInterval = 500 * time.Millisecond

// applyPolicies sets the policies of the file in a cluster that this member has just
// created. Afterwards only the policies in the log are in effect: when this member
// becomes the leader and after each reload, applyPolicies logs where the file differs.
func (m *Member) applyPolicies(ctx context.Context) {
	tick := time.NewTicker(policyInterval)
	defer tick.Stop()
	var compared uint64 // the generation in which the file was compared
	seeds := slices.Clone(*m.policies.Load())
	logged := ""
	for {
		select {
		case <-tick.C:
		case <-m.reloaded:
			m.logDrift()
		case <-ctx.Done():
			return
		}
		generation := m.node.Status().Generation
		if !m.node.Leads() || generation == compared {
			continue
		}
		if !m.isNewCluster() {
			seeds = nil
		}
		var err error
		if seeds, err = m.seedPolicies(ctx, seeds); err != nil {
			if text := err.Error(); text != logged && ctx.Err() == nil { // once for each reason, since it retries
				logged = text
				m.logger.Warn("could not set the policies of the configuration file; retrying", "error", err)
			}
			continue
		}
		m.compareFleet()
		m.logDrift()
		compared, logged = generation, ""
	}
}

// isNewCluster reports whether this process has created the cluster, or nobody has ever
// changed its policies, modes or Redis fleet.
func (m *Member) isNewCluster() bool {
	return m.founded.Load() || m.node.Topology().Version == 0
}

// seedPolicies sets policies, and returns those that it could not set. It leaves out
// prefixes that an operator has given a policy.
func (m *Member) seedPolicies(ctx context.Context, seeds []lease.Policy) (left []lease.Policy, err error) {
	for _, p := range seeds {
		if _, present := policyOf(m.node.Topology().Policies.All(), p.Prefix); present {
			continue
		}
		if _, failed := m.node.SetPolicy(ctx, p, 0, false); failed != nil {
			left, err = append(left, p), failed
			continue
		}
		m.logger.Debug("set a policy from the configuration file", "prefix", p.Prefix, "mode", p.Mode.String())
		m.audit.Write(ctx, audit.Record{Event: audit.PolicySet, Subject: p.Prefix + "*", Mode: p.Mode.String(),
			Detail: "from the configuration file, for a new cluster"})
	}
	return left, err
}

// filePolicies returns the policies of the configuration file.
func (m *Member) filePolicies() []lease.Policy { return *m.policies.Load() }

// logDrift warns if the policies of the file differ from the policies of the cluster.
func (m *Member) logDrift() {
	var differ []string
	all := m.node.Topology().Policies.All()
	for _, p := range m.filePolicies() {
		if present, _ := policyOf(all, p.Prefix); migrated(present) != p {
			differ = append(differ, p.Prefix+"*")
		}
	}
	if len(differ) > 0 {
		m.logger.Warn("policies of the configuration file differ from those of the cluster, which are in effect",
			"prefixes", strings.Join(differ, ","), "hint",
			"`leased policy show` shows both; `leased policy apply FILE` applies the file")
	}
}

// policyOf returns the policy for exactly this prefix.
func policyOf(all []lease.Policy, prefix string) (lease.Policy, bool) {
	i := slices.IndexFunc(all, func(p lease.Policy) bool { return p.Prefix == prefix })
	if i < 0 {
		return lease.Policy{}, false
	}
	return all[i], true
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

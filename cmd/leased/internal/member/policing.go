package member

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leased-project/leased/lease"
)

// policePause is how often a member looks whether it has policies to set.
const policePause = 500 * time.Millisecond

// police sets the policies of the file when this member begins to lead, and
// after each reload. Until then what an operator has set or aborted stays.
func (m *Member) police(ctx context.Context) {
	tick := time.NewTicker(policePause)
	defer tick.Stop()
	var done uint64 // the generation in which they were set
	told := ""
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
			if text := err.Error(); text != told && ctx.Err() == nil { // once for each reason: it is tried again
				told = text
				m.logger.Warn("cannot set the policies of the file yet", "error", err)
			}
			continue
		}
		m.compareFleet()
		done, told = generation, ""
	}
}

// setPolicies sets those that are not as the file says. A change of mode that is
// under way is left to the leader's keeper.
func (m *Member) setPolicies(ctx context.Context) error {
	have := map[string]lease.Policy{}
	for _, p := range m.node.Topology().Policies.All() {
		have[p.Prefix] = destination(p)
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
		m.logger.Info("set a policy", "prefix", p.Prefix, "mode", p.Mode.String())
	}
	return failed
}

// destination is a policy as it will be when its move is complete.
func destination(p lease.Policy) lease.Policy {
	if p.Next != lease.AnyMode {
		p.Mode, p.Next = p.Next, lease.AnyMode
	}
	return p
}

// compareFleet warns if the file names other Redis nodes than the log: the log
// decides, and a file that nobody reads any more misleads.
func (m *Member) compareFleet() {
	seed, fleet := m.settings.Fleet(), m.node.Topology().Fleet
	if seed.IsZero() || fleet.IsZero() || seed.Equal(fleet) {
		return
	}
	m.logger.Warn("the cluster has another Redis fleet than this member's settings; the cluster's counts",
		"redis", strings.Join(seed.Addresses, ","), "fleet", strings.Join(fleet.Addresses, ","),
		"hint", "change the fleet with `leased redis fleet set`, or bring redis, redis-namespace and redis-max-ttl up to date")
}

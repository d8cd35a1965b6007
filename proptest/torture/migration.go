//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

const (
	// switchLimit bounds a migration under faults.
	switchLimit = 2 * time.Minute
	// switchPause is the average time between two migrations.
	switchPause    = time.Second
	switchProperty = "every migration completes"
)

// Switches are the figures of the migrations.
type Switches struct {
	// Done migrations were completed, Now of them without waiting for leases to end.
	Done, Now int
	// Aborted migrations were aborted before they were complete.
	Aborted int
	// Median and Slowest are times from the request to the end of a migration.
	Median, Slowest time.Duration
	// Grants of the migrated locks, by mode.
	Grants map[string]int `json:",omitempty"`
}

// migrator migrates the locks with the switched prefix between the modes, like
// `leased policy set`.
type migrator struct {
	checker *checker
	random  *rand.Rand

	mu    sync.Mutex
	mode  engine.Mode // of the locks; during a migration the old one
	times []time.Duration
	done  Switches
}

// run migrates the locks back and forth until ctx ends. The last migration may be
// incomplete then.
func (m *migrator) run(ctx context.Context) {
	for wait(ctx, time.Duration(m.random.Int64N(int64(2*switchPause)))) {
		m.change(ctx)
	}
}

// change makes one migration and waits for its end.
func (m *migrator) change(ctx context.Context) {
	m.mu.Lock()
	from, to := m.mode, engine.Efficiency
	m.mu.Unlock()
	if from == engine.Efficiency {
		to = engine.Correctness
	}
	now, abort := m.random.IntN(2) == 0, m.random.IntN(8) == 0
	began := m.checker.world.now()
	m.checker.happened(property.Event{Kind: property.Fault, At: began, Who: "policy of " + switchedPrefix,
		Note: "move to " + to.String()})
	err := retry(ctx, switchLimit, func() error { return m.set(ctx, to, now) })
	if err == nil && abort && wait(ctx, time.Duration(m.random.Int64N(int64(500*time.Millisecond)))) {
		_ = m.abort(ctx) // it may be complete
	}
	if err == nil {
		err = retry(ctx, switchLimit, func() error { return m.complete(ctx) })
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		m.checker.violate(fmt.Sprintf("%s: from %s to %s, started at %v, is incomplete after %v: %v", switchProperty, from,
			to, began, switchLimit, err))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mode != to {
		m.done.Aborted++
		return
	}
	if now {
		m.done.Now++
	}
	m.done.Done++
	m.times = append(m.times, m.checker.world.now()-began)
}

// finish waits for a migration that was incomplete when the faults ended.
func (m *migrator) finish(ctx context.Context) {
	if err := retry(ctx, switchLimit, func() error { return m.complete(ctx) }); err != nil && ctx.Err() == nil {
		m.checker.violate(fmt.Sprintf("%s: incomplete %v after the last fault: %v", switchProperty, switchLimit, err))
	}
}

// figures returns the figures so far.
func (m *migrator) figures() Switches {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.done
	if times := slices.Sorted(slices.Values(m.times)); len(times) > 0 {
		s.Median, s.Slowest = times[len(times)/2], times[len(times)-1]
	}
	return s
}

// set requests a mode. It is idempotent.
func (m *migrator) set(ctx context.Context, mode engine.Mode, now bool) error {
	return m.checker.world.atLeader(ctx, func(ctx context.Context, policies pb.PolicyServiceClient) error {
		_, err := policies.SetPolicy(ctx, &pb.SetPolicyRequest{Now: now,
			Policy: &pb.Policy{Prefix: switchedPrefix, Mode: wire.ModeText(mode), Ttl: leaseTTL.String()}})
		return err
	})
}

func (m *migrator) abort(ctx context.Context) error {
	return m.checker.world.atLeader(ctx, func(ctx context.Context, policies pb.PolicyServiceClient) error {
		_, err := policies.AbortMigration(ctx, &pb.AbortMigrationRequest{Prefix: switchedPrefix})
		return err
	})
}

// complete stores the mode, or returns what the migration is waiting for.
func (m *migrator) complete(ctx context.Context) error {
	return m.checker.world.atLeader(ctx, func(ctx context.Context, policies pb.PolicyServiceClient) error {
		list, err := policies.ListPolicies(ctx, &pb.ListPoliciesRequest{})
		if err != nil {
			return err
		}
		for _, move := range list.Migrations {
			if move.Prefix == switchedPrefix {
				return fmt.Errorf("waiting for %s", move.WaitingFor)
			}
		}
		for _, p := range list.Policies {
			if p.Prefix != switchedPrefix {
				continue
			}
			policy, err := wire.ToPolicy(p)
			if err != nil {
				return err
			}
			m.mu.Lock()
			m.mode = policy.Mode
			m.mu.Unlock()
			return nil
		}
		return fmt.Errorf("the policy for %q is missing", switchedPrefix)
	})
}

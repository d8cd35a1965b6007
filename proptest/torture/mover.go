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
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/proptest/property"
)

const (
	// switchLimit is how long a change of mode may take under faults.
	switchLimit = 2 * time.Minute
	// switchPause is the time between two changes, on average.
	switchPause = time.Second
	switchEnds  = "every change of mode ends"
)

// Switches are the figures of the changes of mode.
type Switches struct {
	// Done were completed, Now of them without waiting for leases to end.
	Done, Now int
	// Aborted were taken back by AbortMove before they were complete.
	Aborted int
	// Median and Slowest are times from the request to the end of a change.
	Median, Slowest time.Duration
	// Grants are those of the locks that change their mode, by mode.
	Grants map[string]int `json:",omitempty"`
}

// mover moves the locks whose names begin with the switched prefix between the
// modes, as an operator does with `leased policy set`.
type mover struct {
	world  *world
	random *rand.Rand
	tell   func(property.Event)
	broken func(string) // adds a violation

	mu    sync.Mutex
	mode  engine.Mode // that the locks have, or had before the change
	times []time.Duration
	done  Switches
}

func newMover(w *world, c *checker) *mover {
	return &mover{world: w, random: rand.New(rand.NewPCG(w.config.Seed, 1<<32)), tell: c.happened, broken: c.violate, mode: engine.Correctness}
}

// prepare gives the locks their first mode.
func (m *mover) prepare(ctx context.Context) error {
	return ask(ctx, func() error { return m.set(ctx, m.mode, false) })
}

// run changes the mode back and forth until ctx ends. A change that is under way
// then is left to finish.
func (m *mover) run(ctx context.Context) {
	for wait(ctx, time.Duration(m.random.Int64N(int64(2*switchPause)))) {
		m.change(ctx)
	}
}

// change makes one change, and waits for its end.
func (m *mover) change(ctx context.Context) {
	m.mu.Lock()
	from, to := m.mode, engine.Efficiency
	m.mu.Unlock()
	if from == engine.Efficiency {
		to = engine.Correctness
	}
	now, abort := m.random.IntN(2) == 0, m.random.IntN(8) == 0
	began := m.world.now()
	m.tell(property.Event{Kind: property.Fault, At: began, Who: "policy of " + switchedPrefix, Note: "move to " + to.String()})
	err := m.retry(ctx, func() error { return m.set(ctx, to, now) })
	if err == nil && abort && wait(ctx, time.Duration(m.random.Int64N(int64(500*time.Millisecond)))) {
		_ = m.abort(ctx) // it may be over
	}
	if err == nil {
		err = m.retry(ctx, func() error { return m.complete(ctx) })
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		m.broken(fmt.Sprintf("%s: from %s to %s, begun at %v, was not complete after %v: %v", switchEnds, from, to, began, switchLimit, err))
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
	m.times = append(m.times, m.world.now()-began)
}

// finish waits for a change that was under way when the faults ended.
func (m *mover) finish(ctx context.Context) {
	if err := m.retry(ctx, func() error { return m.complete(ctx) }); err != nil && ctx.Err() == nil {
		m.broken(fmt.Sprintf("%s: not complete %v after the last fault: %v", switchEnds, switchLimit, err))
	}
}

// figures are those until now.
func (m *mover) figures() Switches {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.done
	if times := slices.Sorted(slices.Values(m.times)); len(times) > 0 {
		s.Median, s.Slowest = times[len(times)/2], times[len(times)-1]
	}
	return s
}

func (m *mover) retry(ctx context.Context, do func() error) (err error) {
	until(ctx, switchLimit, func() bool { err = do(); return err == nil })
	return err
}

// set asks for a mode. It is idempotent.
func (m *mover) set(ctx context.Context, mode engine.Mode, now bool) error {
	return m.world.atLeader(ctx, func(ctx context.Context, policies pb.PolicyServiceClient) error {
		_, err := policies.SetPolicy(ctx, &pb.SetPolicyRequest{Now: now,
			Policy: &pb.Policy{Prefix: switchedPrefix, Mode: wire.ModeText(mode), Ttl: leaseTTL.String()}})
		return err
	})
}

func (m *mover) abort(ctx context.Context) error {
	return m.world.atLeader(ctx, func(ctx context.Context, policies pb.PolicyServiceClient) error {
		_, err := policies.AbortMigration(ctx, &pb.AbortMigrationRequest{Prefix: switchedPrefix})
		return err
	})
}

// complete notes the mode, or returns what the change is waiting for.
func (m *mover) complete(ctx context.Context) error {
	return m.world.atLeader(ctx, func(ctx context.Context, policies pb.PolicyServiceClient) error {
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

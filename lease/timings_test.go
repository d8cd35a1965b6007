package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore/memory"
)

// policyBackend is a service with policies of its own.
type policyBackend struct {
	*memory.Backend
	mu       sync.Mutex
	topology engine.Topology
	unknown  error // why the topology is not known yet
}

func (g *policyBackend) Topology() engine.Topology {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.topology
}

func (g *policyBackend) NextTopology(ctx context.Context, _ uint64) (engine.Topology, error) {
	<-ctx.Done()
	return engine.Topology{}, context.Cause(ctx)
}

func (g *policyBackend) RefreshTopology() {}

func (g *policyBackend) AwaitTopology(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unknown
}

func (g *policyBackend) set(t *testing.T, policies ...engine.Policy) {
	t.Helper()
	set, err := engine.NewPolicies(policies...)
	require.NoError(t, err)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.topology = engine.Topology{Version: g.topology.Version + 1, Policies: set}
}

func newPolicyBackend(t *testing.T, options ...lease.Option) (*policyBackend, *lease.Client) {
	t.Helper()
	memory, err := memory.New()
	require.NoError(t, err)
	g := &policyBackend{Backend: memory}
	c, err := lease.New(g, append([]lease.Option{lease.WithClock(leasetest.NewClock())}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return g, c
}

// left returns the time until the deadline of a lease.
func left(l *lease.Lease) time.Duration { return time.Until(l.Deadline()) }

func TestServicePolicySetsTheTimings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewals []time.Time
		var mu sync.Mutex
		g, c := newPolicyBackend(t, lease.WithHooks(lease.Hooks{Renewed: func(lease.Renewal) {
			mu.Lock()
			defer mu.Unlock()
			renewals = append(renewals, time.Now())
		}}))
		g.set(t, engine.Policy{Prefix: "a", Mode: engine.Correctness, TTL: time.Minute, Renew: 7 * time.Second,
			Drift: 5 * time.Second})
		began := time.Now()
		l, err := c.Acquire(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, 55*time.Second, left(l), "TTL minus drift")
		time.Sleep(8 * time.Second)
		mu.Lock()
		require.Equal(t, []time.Time{began.Add(7 * time.Second)}, renewals)
		mu.Unlock()

		g.set(t, engine.Policy{Prefix: "a", Mode: engine.Correctness, TTL: 30 * time.Second, Drift: 5 * time.Second})
		require.NoError(t, l.Release(t.Context()))
		l, err = c.Acquire(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, 25*time.Second, left(l), "the next acquire uses the changed policy")
		require.NoError(t, l.Release(t.Context()))
		l, err = c.Acquire(t.Context(), "a", lease.WithTTL(20*time.Second))
		require.NoError(t, err)
		require.Equal(t, 15*time.Second, left(l), "the call sets the TTL, the policy the drift")
		l, err = c.Acquire(t.Context(), "other")
		require.NoError(t, err)
		require.Equal(t, validity, left(l), "without a policy the defaults apply")
	})
}

func TestClientPoliciesApplyWhereTheServiceHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := newPolicyBackend(t, lease.WithPolicies(engine.Policy{TTL: time.Minute, Drift: time.Second},
			engine.Policy{Prefix: "fast/", Mode: engine.Efficiency}))
		g.set(t, engine.Policy{Prefix: "b", Mode: engine.Correctness, TTL: 10 * time.Second})
		l, err := c.Acquire(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, 59*time.Second, left(l))
		l, err = c.Acquire(t.Context(), "b")
		require.NoError(t, err)
		require.Equal(t, validity, left(l))
		_, err = c.Acquire(t.Context(), "fast/a")
		require.ErrorIs(t, err, engine.ErrModeMismatch, "a mode in the client's policy is what the client expects")
	})
}

func TestAcquireWaitsForTheFirstTopology(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting := make(chan error, 100)
		g, c := newPolicyBackend(t, lease.WithHooks(lease.Hooks{Waiting: func(_ context.Context, e lease.Event) {
			waiting <- e.Err
		}}))
		g.unknown = engine.ErrUnavailable
		_, err := c.TryAcquire(t.Context(), "a")
		require.ErrorIs(t, err, engine.ErrUnavailable)
		granted := make(chan *lease.Lease, 1)
		go func() {
			l, err := c.Acquire(context.Background(), "a")
			require.NoError(t, err)
			granted <- l
		}()
		require.ErrorIs(t, <-waiting, engine.ErrUnavailable)
		g.set(t, engine.Policy{Mode: engine.Correctness, TTL: 40 * time.Second, Drift: time.Second})
		g.mu.Lock()
		g.unknown = nil
		g.mu.Unlock()
		require.Equal(t, 39*time.Second, left(<-granted))

		g.mu.Lock()
		g.unknown = engine.ErrInvalid
		g.mu.Unlock()
		_, err = c.Acquire(t.Context(), "b")
		require.ErrorIs(t, err, engine.ErrInvalid, "Acquire does not wait after a final error")
	})
}

func TestOnClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var free int
		memory, err := memory.New()
		require.NoError(t, err)
		c, err := lease.New(memory, lease.WithOnClose(func(ctx context.Context) error {
			status, err := memory.Inspect(ctx, "a")
			if err == nil && len(status.Holders) == 0 {
				free++
			}
			return broken
		}))
		require.NoError(t, err)
		_, err = c.Acquire(t.Context(), "a")
		require.NoError(t, err)
		require.ErrorIs(t, c.Close(t.Context()), broken)
		require.Equal(t, 1, free, "after everything was released")
		require.NoError(t, c.Close(t.Context()), "once")
		_, err = lease.New(memory, lease.WithOnClose(nil))
		require.ErrorIs(t, err, engine.ErrInvalid)
	})
}

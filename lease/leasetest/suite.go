package leasetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// Subject is a service under test.
type Subject struct {
	// Backend returns one more way to the service, as another process would
	// have. The locks that the suite uses are new each time.
	Backend func() engine.Backend
	// Mode is the mode of these locks.
	Mode engine.Mode
	// TTL is how long the suite's leases last. Short, since some tests wait for
	// one to run out; long against the time of a request.
	TTL time.Duration
	// Clock is where the suite's clients read the time. Nil is the system's.
	Clock engine.Clock
	// FIFO says that waiters of different clients are served in their order.
	FIFO bool
	// Unsupported lists what the service refuses with engine.ErrUnsupported.
	Unsupported []Feature
}

// Feature is something that a backend may refuse.
type Feature string

// The features that a backend may refuse.
const (
	FeatureShared  Feature = "shared"
	FeaturePermits Feature = "permits"
	FeatureSets    Feature = "sets"
)

// RunOption changes how the suite runs.
type RunOption func(*runner)

// InBubble runs each test in a synctest bubble of its own, for services that
// live in memory: time is virtual there.
func InBubble() RunOption {
	return func(r *runner) { r.bubble = true }
}

type runner struct {
	open   func(t *testing.T) Subject
	bubble bool
}

// Run checks that a backend keeps the contract of package lease. open is called
// at the beginning of each test.
func Run(t *testing.T, open func(t *testing.T) Subject, options ...RunOption) {
	r := &runner{open: open}
	for _, option := range options {
		option(r)
	}
	for _, group := range [][]conformance{grantTests, waitTests, lossTests, kindTests, sessionTests} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				if r.bubble {
					synctest.Test(t, func(t *testing.T) { c.run(newFixture(t, r.open(t))) })
				} else {
					c.run(newFixture(t, r.open(t)))
				}
			})
		}
	}
}

// conformance is one test of the suite.
type conformance struct {
	name string
	run  func(f *fixture)
}

// patience ends a test that hangs. It is no measure of speed.
const patience = 2 * time.Minute

// fixture is what a test works with: a service, and names that nobody uses.
type fixture struct {
	*testing.T
	Subject
	ctx    context.Context
	prefix string
}

var fixtures atomic.Int64

func newFixture(t *testing.T, s Subject) *fixture {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return &fixture{T: t, Subject: s, ctx: ctx, prefix: fmt.Sprintf("leasetest/%s/%d/", engine.NewSessionID().String()[:8], fixtures.Add(1))}
}

// name is a resource of this test alone.
func (f *fixture) name(s string) fencing.Resource { return fencing.Resource(f.prefix + s) }

// client returns a client of its own process, closed at the end of the test.
func (f *fixture) client(options ...lease.Option) *lease.Client {
	f.Helper()
	defaults := []lease.Option{lease.WithPolicies(engine.Policy{TTL: f.TTL})}
	if f.Clock != nil {
		defaults = append(defaults, lease.WithClock(f.Clock))
	}
	c, err := lease.New(f.Backend(), append(defaults, options...)...)
	require.NoError(f, err)
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(f, c.Close(ctx))
	})
	return c
}

// acquire takes a lease that must be granted.
func (f *fixture) acquire(c *lease.Client, r fencing.Resource, options ...lease.AcquireOption) *lease.Lease {
	f.Helper()
	l, err := c.Acquire(f.ctx, r, options...)
	require.NoError(f, err)
	require.NoError(f, l.Err())
	require.True(f, l.Token().Valid())
	require.Equal(f, f.Mode, l.Mode())
	return l
}

// release gives a lease back, which must be confirmed.
func (f *fixture) release(l *lease.Lease) {
	f.Helper()
	require.NoError(f, l.Release(f.ctx))
}

// requireHeld checks that the lock cannot be taken now.
func (f *fixture) requireHeld(c *lease.Client, r fencing.Resource, options ...lease.AcquireOption) {
	f.Helper()
	_, err := c.TryAcquire(f.ctx, r, options...)
	require.ErrorIs(f, err, engine.ErrHeld)
}

// wait returns when done is closed.
func (f *fixture) wait(done <-chan struct{}) {
	f.Helper()
	select {
	case <-done:
	case <-f.ctx.Done():
		require.FailNow(f, "the test has waited for too long")
	}
}

// pending is an Acquire that is under way on another goroutine.
type pending struct {
	f      *fixture
	lease  *lease.Lease
	err    error
	done   chan struct{}
	cancel context.CancelFunc
}

// start begins an Acquire by a client of its own and returns when it waits.
func (f *fixture) start(r fencing.Resource, options ...lease.AcquireOption) *pending {
	f.Helper()
	waiting := make(chan struct{}, 100)
	c := f.client(lease.WithHooks(lease.Hooks{Waiting: func(lease.Event) { waiting <- struct{}{} }}))
	ctx, cancel := context.WithCancel(f.ctx)
	f.Cleanup(cancel)
	p := &pending{f: f, done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(p.done)
		p.lease, p.err = c.Acquire(ctx, r, options...)
	}()
	select {
	case <-waiting:
	case <-p.done:
		require.FailNow(f, "Acquire was expected to wait", "lease %v, error %v", p.lease, p.err)
	case <-f.ctx.Done():
		require.FailNow(f, "Acquire neither waits nor returns")
	}
	return p
}

// granted returns the lease once the Acquire has been granted.
func (p *pending) granted() *lease.Lease {
	p.f.Helper()
	p.f.wait(p.done)
	require.NoError(p.f, p.err)
	return p.lease
}

// isWaiting reports whether the Acquire has not returned.
func (p *pending) isWaiting() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

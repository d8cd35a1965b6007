package leasetest

import (
	"cmp"
	"context"
	"errors"
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

// Subject is an engine under test.
type Subject struct {
	// Backend returns another backend on the same service, as another process
	// would have. The suite uses new locks in each test.
	Backend func() engine.Backend
	// Mode is the mode of these locks.
	Mode engine.Mode
	// TTL is the TTL of the suite's leases. Some tests wait for up to two TTLs.
	// With real servers use 10 s or more and InParallel: a loaded machine may
	// delay a renewal by seconds.
	TTL time.Duration
	// Clock is the clock of the suite's clients. Nil is the system clock.
	Clock engine.Clock
	// Sessionless says that the engine keeps leases but no sessions: it does not know a
	// repeated attempt.
	Sessionless bool
	// FIFO says that waiters of different clients are granted in order.
	FIFO bool
	// Unsupported lists the features that the engine refuses with
	// engine.ErrUnsupported.
	Unsupported []Feature
}

// Feature is something that an engine may refuse.
type Feature string

// The features that an engine may refuse.
const (
	FeatureShared  Feature = "shared"
	FeaturePermits Feature = "permits"
	FeatureSets    Feature = "sets"
)

// RunOption configures Run.
type RunOption func(*runner)

// InBubble runs each test in a synctest bubble of its own, in virtual time, for
// engines that live in memory.
func InBubble() RunOption {
	return func(r *runner) { r.bubble = true }
}

// InParallel runs the tests of the suite in parallel, for engines with real servers.
// The open function of Run is then called concurrently.
func InParallel() RunOption {
	return func(r *runner) { r.parallel = true }
}

type runner struct {
	open     func(t *testing.T) Subject
	bubble   bool
	parallel bool
}

// Run checks that an engine keeps the contract of package engine. It calls open at the
// beginning of each test.
func Run(t *testing.T, open func(t *testing.T) Subject, options ...RunOption) {
	r := &runner{open: open}
	for _, option := range options {
		option(r)
	}
	for _, group := range [][]conformance{grantTests, waitTests, lossTests, kindTests, sessionTests} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				if r.parallel {
					t.Parallel()
				}
				if r.bubble {
					synctest.Test(t, func(t *testing.T) { c.run(newFixture(t, r)) })
				} else {
					c.run(newFixture(t, r))
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

// testTimeout ends a test that waits for something that does not happen.
const testTimeout = 2 * time.Minute

// fixture is an engine and lock names that no other test uses.
type fixture struct {
	*testing.T
	Subject
	ctx    context.Context
	prefix string
	busy   bool // on a real machine, the service may not confirm a release in time
}

var fixtures atomic.Int64

func newFixture(t *testing.T, r *runner) *fixture {
	s := r.open(t)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	s.Clock = cmp.Or(s.Clock, engine.SystemClock())
	return &fixture{T: t, Subject: s, ctx: ctx, busy: !r.bubble,
		prefix: fmt.Sprintf("leasetest/%s/%d/", engine.NewSessionID().String()[:8], fixtures.Add(1))}
}

// name returns a resource of this test.
func (f *fixture) name(s string) fencing.Resource { return fencing.Resource(f.prefix + s) }

// client returns a client on a backend of its own. It is closed at the end of the test.
func (f *fixture) client(options ...lease.Option) *lease.Client {
	f.Helper()
	defaults := []lease.Option{lease.WithPolicies(engine.Policy{TTL: f.TTL}), lease.WithClock(f.Clock)}
	c, err := lease.New(f.Backend(), append(defaults, options...)...)
	require.NoError(f, err)
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		f.confirmed(c.Close(ctx))
	})
	return c
}

// acquire acquires a lease that must be granted.
func (f *fixture) acquire(c *lease.Client, r fencing.Resource, options ...lease.AcquireOption) *lease.Lease {
	f.Helper()
	l, err := c.Acquire(f.ctx, r, options...)
	require.NoError(f, err)
	require.NoError(f, l.Err())
	require.True(f, l.Token().Valid())
	require.Equal(f, f.Mode, l.Mode())
	return l
}

// release releases a lease.
func (f *fixture) release(l *lease.Lease) {
	f.Helper()
	f.confirmed(l.Release(f.ctx))
}

// confirmed checks the result of Release or Close. On a busy machine, or while the leader changes, the service may not
// confirm it in time: then the client releases in the background, or the leases expire.
func (f *fixture) confirmed(err error) {
	f.Helper()
	for _, late := range []error{engine.ErrUncertain, engine.ErrUnavailable, context.DeadlineExceeded} {
		if f.busy && errors.Is(err, late) {
			f.Log(err)
			return
		}
	}
	require.NoError(f, err)
}

// requireHeld checks that the lock cannot be acquired now.
func (f *fixture) requireHeld(c *lease.Client, r fencing.Resource, options ...lease.AcquireOption) {
	f.Helper()
	err := f.retry(func() error { _, err := c.TryAcquire(f.ctx, r, options...); return err })
	require.ErrorIs(f, err, engine.ErrHeld)
}

// notBroken checks that no lease with the token can be broken. If the service did not answer, perhaps because its
// leader ended, Break asks again, and cannot know whether its first call broke a lease. It then reports that the lease
// is over. The next call knows.
func (f *fixture) notBroken(c *lease.Client, r fencing.Resource, token fencing.Token) {
	err := c.Break(f.ctx, r, token)
	for n := 0; n < 3 && err == nil; n++ {
		err = c.Break(f.ctx, r, token)
	}
	require.ErrorIs(f, err, engine.ErrNotHeld)
}

// wait waits until done is closed.
func (f *fixture) wait(done <-chan struct{}) {
	f.Helper()
	receive(f, done)
}

// receive returns the next value of a channel.
func receive[T any](f *fixture, values <-chan T) (value T) {
	f.Helper()
	select {
	case value = <-values:
	case <-f.ctx.Done():
		require.FailNow(f, "nothing happened within the time limit of the test")
	}
	return value
}

// pending is an Acquire on another goroutine.
type pending struct {
	f      *fixture
	client *lease.Client
	lease  *lease.Lease
	err    error
	done   chan struct{}
	cancel context.CancelFunc
}

// start starts an Acquire of another client and returns when it waits for the lock. If the service has no leader until
// the Acquire ends, start begins again.
func (f *fixture) start(r fencing.Resource, options ...lease.AcquireOption) *pending {
	f.Helper()
	for {
		p, waiting := f.begin(r, options...)
		select {
		case <-waiting:
			return p
		case <-p.done:
			if f.busy && unanswered(p.err) && engine.Sleep(f.ctx, retryPause) == nil {
				f.Log(p.err)
				continue
			}
			require.FailNow(f, "Acquire was expected to wait", "lease %v, error %v", p.lease, p.err)
		case <-f.ctx.Done():
			require.FailNow(f, "Acquire neither waits nor returns")
		}
	}
}

// begin starts an Acquire of another client. The channel has a value when it waits for the lock.
func (f *fixture) begin(r fencing.Resource, options ...lease.AcquireOption) (p *pending, waiting chan struct{}) {
	f.Helper()
	waiting = make(chan struct{}, 100)
	c := f.client(lease.WithHooks(lease.Hooks{Waiting: func(_ context.Context, e lease.Event) {
		if e.Err == nil { // it is in the queue; otherwise it tries again
			waiting <- struct{}{}
		}
	}}))
	ctx, cancel := context.WithCancel(f.ctx)
	f.Cleanup(cancel)
	p = &pending{f: f, client: c, done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(p.done)
		p.lease, p.err = c.Acquire(ctx, r, options...)
	}()
	return p, waiting
}

// granted waits for the grant and returns the lease.
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

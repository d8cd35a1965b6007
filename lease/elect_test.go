package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

func TestDoReportsThatTheClientWasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		err := s.client.Do(t.Context(), "a", func(ctx context.Context, l *lease.Lease) error {
			go func() { _ = s.client.Close(context.Background()) }()
			<-ctx.Done()
			return nil
		})
		require.ErrorIs(t, err, lease.ErrClosed, "the lease ended before the work")
	})
}

// TestCloseMeetsOtherCalls checks that calls on a lease may run while Close returns.
func TestCloseMeetsOtherCalls(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(t)
			l := s.acquire()
			for range 2 {
				go func() { _ = s.client.Close(context.Background()) }()
			}
			for range 20 {
				go func() { _ = l.Err() }()
			}
			<-l.Done()
			require.ErrorIs(t, l.Err(), lease.ErrClosed)
		})
	}
}

func TestElect(t *testing.T) {
	mine := errors.New("the disk is on fire")
	tests := []struct {
		name  string
		first func(ctx context.Context, s *setup, l *lease.Lease) error // the first term
		want  error                                                     // nil if a second term follows
	}{
		{"steps down and campaigns again", func(context.Context, *setup, *lease.Lease) error { return nil }, nil},
		{"an error of lead ends it", func(context.Context, *setup, *lease.Lease) error { return mine }, mine},
		{"a loss does not end it", func(ctx context.Context, s *setup, l *lease.Lease) error {
			require.NoError(s, s.memory.Break(ctx, "a", l.Token()))
			<-ctx.Done()
			return ctx.Err()
		}, nil},
		{"a write refused after the loss does not end it", func(ctx context.Context, s *setup, l *lease.Lease) error {
			require.NoError(s, s.memory.Break(ctx, "a", l.Token()))
			<-ctx.Done()
			return fmt.Errorf("write: %w", &fencing.StaleError{Resource: "a", Token: 1, Mark: 2})
		}, nil},
		{"an error of lead after a loss ends it", func(ctx context.Context, s *setup, l *lease.Lease) error {
			require.NoError(s, s.memory.Break(ctx, "a", l.Token()))
			<-ctx.Done()
			return mine
		}, mine},
		{"the loss of another lease ends it", func(ctx context.Context, s *setup, _ *lease.Lease) error {
			return s.client.Do(ctx, "inner", func(ctx context.Context, inner *lease.Lease) error {
				return s.memory.Break(ctx, "inner", inner.Token())
			})
		}, engine.ErrLost},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetup(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				terms := 0
				err := s.client.Elect(ctx, "a", func(ctx context.Context, l *lease.Lease) error {
					if terms++; terms > 1 {
						cancel()
						return nil
					}
					return tt.first(ctx, s, l)
				})
				if tt.want != nil {
					require.ErrorIs(t, err, tt.want)
					require.Equal(t, 1, terms)
					return
				}
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, 2, terms)
			})
		})
	}
}

// After an outage, all former leaders of a user campaign again at once. Those refused by the rate limit retry.
func TestElectOutlivesALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		terms, limited := 0, 0
		err := s.client.Elect(t.Context(), "a", func(context.Context, *lease.Lease) error {
			s.tap(func(on *taps) {
				on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
					if limited++; limited < 4 || terms == 2 {
						return engine.Grant{}, engine.ErrLimit
					}
					return next(ctx, r)
				}
			})
			if terms++; terms == 2 {
				return context.Canceled
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 2, terms)
		require.Equal(t, 4, limited)
		require.ErrorIs(t, s.client.Elect(t.Context(), "b", nil), engine.ErrLimit, "it has never led")
	})
}

func TestObserveOutlivesAnOutageAndEndsWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var leaders []lease.Leader
		done := make(chan error)
		s.memory.Fail(engine.ErrUnavailable)
		go func() {
			done <- s.client.Observe(t.Context(), "a", func(l lease.Leader) { leaders = append(leaders, l) })
		}()
		time.Sleep(10 * time.Second)
		s.memory.Fail(nil)
		time.Sleep(5 * time.Second)
		l := s.acquire(lease.WithMetadata(map[string]string{"at": "here"}))
		synctest.Wait()
		require.NoError(t, s.client.Close(context.Background()))
		require.ErrorIs(t, <-done, lease.ErrClosed)
		require.Equal(t, lease.Leader{}, leaders[0])
		require.Equal(t, lease.Leader{Holder: "tester", Token: l.Token(), Metadata: map[string]string{"at": "here"}},
			leaders[1])
	})
}

// limitedWatch is a backend whose Watch fails with these errors, one after the other, and then works.
type limitedWatch struct {
	engine.Backend
	errs []error
}

func (b *limitedWatch) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	if len(b.errs) > 0 {
		err := b.errs[0]
		b.errs = b.errs[1:]
		if errors.Is(err, engine.ErrUnavailable) { // it worked until then
			changed(engine.Status{})
		}
		return err
	}
	return b.Backend.Watch(ctx, resource, changed)
}

// After a failover, all observers of a user reconnect at once. Those refused by the rate limit retry.
func TestObserveOutlivesALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		observe := func(errs ...error) (leaders []lease.Leader, err error) {
			observer, err := lease.New(&limitedWatch{s.memory, errs})
			require.NoError(t, err)
			defer observer.Close(t.Context())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err = observer.Observe(ctx, "a", func(l lease.Leader) { leaders = append(leaders, l) })
			return leaders, err
		}
		l := s.acquire()
		leaders, err := observe(engine.ErrUnavailable, engine.ErrLimit, engine.ErrLimit)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []lease.Leader{{}, {Holder: "tester", Token: l.Token()}}, leaders)
		_, err = observe(engine.ErrLimit)
		require.ErrorIs(t, err, engine.ErrLimit, "it has never worked")
	})
}

// A change that leaves the leader in place, such as a candidate that joins the queue, is not
// reported.
func TestObserveReportsEachLeaderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var leaders []lease.Leader
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_ = s.client.Observe(ctx, "a", func(l lease.Leader) { leaders = append(leaders, l) })
		}()
		synctest.Wait()
		l := s.acquire()
		synctest.Wait()
		require.Len(t, leaders, 2)
		waiting, leave := context.WithCancel(t.Context())
		go func() { _, _ = s.other().Acquire(waiting, "a") }()
		synctest.Wait()
		leave()
		synctest.Wait()
		require.Len(t, leaders, 2, "the queue has changed, not the leader")
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		require.Equal(t, []lease.Leader{{}, {Holder: "tester", Token: l.Token()}, {}}, leaders)
	})
}

// hidesTokens is a backend as users see it who may not break locks.
type hidesTokens struct{ engine.Backend }

func (b hidesTokens) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	return b.Backend.Watch(ctx, resource, func(s engine.Status) {
		for i := range s.Holders {
			s.Holders[i].Token = fencing.None
		}
		changed(s)
	})
}

// An observer to whom the service does not show tokens sees each leader.
func TestObserveWithoutTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		observer, err := lease.New(hidesTokens{s.memory})
		require.NoError(t, err)
		defer observer.Close(t.Context())
		var leaders []lease.Leader
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = observer.Observe(ctx, "a", func(l lease.Leader) { leaders = append(leaders, l) }) }()
		synctest.Wait()
		for range 2 {
			l := s.acquire()
			time.Sleep(time.Second)
			require.NoError(t, l.Release(t.Context()))
			synctest.Wait()
		}
		require.Equal(t, []lease.Leader{{}, {Holder: "tester"}, {}, {Holder: "tester"}, {}}, leaders)
	})
}

package load_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/load"
)

// service is a lock service in memory. An acquisition takes a millisecond.
type service struct {
	mu     sync.Mutex
	locks  map[string]chan struct{} // holds a value while the lock is held
	tokens atomic.Uint64
	opened atomic.Int64
	closed atomic.Int64
	fail   func() error // nil, or whether an acquisition fails
}

func newService() *service { return &service{locks: map[string]chan struct{}{}} }

func (s *service) Open(context.Context) (load.Client, error) {
	s.opened.Add(1)
	return &client{s}, nil
}

func (s *service) lock(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks[name] == nil {
		s.locks[name] = make(chan struct{}, 1)
	}
	return s.locks[name]
}

// held returns the number of locks that are held.
func (s *service) held() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.locks {
		n += len(l)
	}
	return n
}

type client struct{ s *service }

func (c *client) Acquire(ctx context.Context, name string) (load.Held, error) {
	time.Sleep(time.Millisecond)
	if c.s.fail != nil {
		if err := c.s.fail(); err != nil {
			return load.Held{}, err
		}
	}
	l := c.s.lock(name)
	select {
	case l <- struct{}{}:
		return load.Held{Token: c.s.tokens.Add(1), Release: func(context.Context) error { <-l; return nil }}, nil
	case <-ctx.Done():
		return load.Held{}, ctx.Err()
	}
}

func (c *client) Close(context.Context) error {
	c.s.closed.Add(1)
	return nil
}

func TestRunOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		var hooks []string
		hook := func(name string) func() { return func() { hooks = append(hooks, name) } }
		result, err := load.Run(t.Context(), s.Open, load.Work{Kind: load.Own, Workers: 4, Clients: 2}, load.Options{
			WarmUp: time.Second, Length: 10 * time.Second, Ready: hook("ready"), Begin: hook("begin"), End: hook("end"),
		})
		require.NoError(t, err)
		require.Equal(t, []string{"ready", "begin", "end"}, hooks)
		require.Equal(t, 10*time.Second, result.Elapsed)
		require.InDelta(t, 40_000, result.Pairs, 8, "each worker takes a millisecond a pair; the warm-up does not count")
		require.Len(t, result.Grants, 4)
		require.InDelta(t, 1, result.Fairness(), 0.01)
		require.InDelta(t, 4_000, result.Rate(), 1)
		require.InEpsilon(t, time.Millisecond, result.Acquire.Quantile(0.99), 0.01)
		require.InEpsilon(t, time.Millisecond, result.Pair.Quantile(0.5), 0.01)
		require.Zero(t, result.Errors)
		require.Len(t, s.locks, 4)
		require.EqualValues(t, 2, s.opened.Load())
		require.EqualValues(t, 2, s.closed.Load())
	})
}

func TestRunContended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		var holders atomic.Int64
		result, err := load.Run(t.Context(), s.Open, load.Work{Kind: load.Contended, Workers: 8, Clients: 1}, load.Options{
			Length: time.Second,
			Granted: func(g load.Grant) {
				require.False(t, g.At.Before(g.Requested))
				require.NotZero(t, g.Token)
				holders.Store(max(holders.Load(), int64(s.held())))
				time.Sleep(time.Millisecond)
			},
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, holders.Load())
		require.Len(t, s.locks, 1)
		require.InDelta(t, 1000, result.Pairs, 10, "a pair is held for a millisecond")
		require.InDelta(t, 1, result.Fairness(), 0.05)
	})
}

func TestRunHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		var atEnd int
		result, err := load.Run(t.Context(), s.Open, load.Work{Kind: load.Hold, Leases: 1001, Workers: 10, Clients: 1},
			load.Options{End: func() { atEnd = s.held() }})
		require.NoError(t, err)
		require.Equal(t, 1001, atEnd, "all locks are held at the same time")
		require.Zero(t, s.held(), "all locks are released in the end")
		require.EqualValues(t, 1001, result.Pairs)
		require.Equal(t, 101*time.Millisecond, result.Elapsed)
	})
}

// Some of the workers take their locks at a time, here two for each millisecond.
func TestRunHoldAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		work := load.Work{Kind: load.Hold, Leases: 10, Workers: 10, Clients: 5}
		result, err := load.Run(t.Context(), newService().Open, work, load.Options{AtOnce: 2})
		require.NoError(t, err)
		require.Equal(t, 5*time.Millisecond, result.Elapsed)
	})
}

func TestRunHoldAbandons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		_, err := load.Run(t.Context(), s.Open, load.Work{Kind: load.Hold, Leases: 10, Workers: 2, Clients: 1},
			load.Options{Abandon: true})
		require.NoError(t, err)
		require.Equal(t, 10, s.held())
		require.EqualValues(t, 1, s.closed.Load())
	})
}

func TestRunCountsErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		start := time.Now()
		s.fail = func() error {
			if at := time.Since(start); at > 2*time.Second && at < 3*time.Second {
				return errors.New("no leader")
			}
			return nil
		}
		result, err := load.Run(t.Context(), s.Open, load.Work{Kind: load.Own, Workers: 1, Clients: 1},
			load.Options{Length: 5 * time.Second})
		require.NoError(t, err)
		require.Equal(t, "no leader", result.FirstError)
		require.InDelta(t, 1000/6, result.Errors, 2, "a worker waits after an error")
		require.InDelta(t, 4000, result.Pairs, 10)
	})
}

func TestRunEndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := load.Run(ctx, s.Open, load.Work{Kind: load.Contended, Workers: 3, Clients: 3},
			load.Options{Length: time.Hour})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, s.held())
		require.EqualValues(t, 3, s.closed.Load())
	})
}

// stuckClient is a service whose acquisitions end with the service, as those of a library
// without contexts.
type stuckClient struct {
	*service
	ended chan struct{}
}

func (d *stuckClient) Open(context.Context) (load.Client, error) { return d, nil }

func (d *stuckClient) Close(context.Context) error { return nil }

func (d *stuckClient) Acquire(context.Context, string) (load.Held, error) {
	<-d.ended
	return load.Held{}, errors.New("the service has ended")
}

func TestRunEndsWithoutTheClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &stuckClient{newService(), make(chan struct{})}
		defer close(d.ended)
		start := time.Now()
		_, err := load.Run(t.Context(), d.Open, load.Work{Kind: load.Own, Workers: 2, Clients: 1},
			load.Options{Length: time.Second})
		require.ErrorContains(t, err, "did not end")
		require.Equal(t, 41*time.Second, time.Since(start))
	})
}

func TestRunRejectsSizes(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]load.Work{
		"no worker":                load.Work{Kind: load.Own, Clients: 1},
		"no client":                load.Work{Kind: load.Contended, Workers: 1},
		"more clients than worker": load.Work{Kind: load.Own, Workers: 1, Clients: 2},
		"more workers than leases": load.Work{Kind: load.Hold, Leases: 1, Workers: 2, Clients: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load.Run(t.Context(), newService().Open, work, load.Options{})
			require.Error(t, err)
		})
	}
}

func TestHistogram(t *testing.T) {
	var h load.Histogram
	require.Zero(t, h.Quantile(0.5))
	for i := range 100_000 {
		h.Observe(time.Duration(i+1) * time.Microsecond)
	}
	for _, part := range []float64{0.001, 0.5, 0.9, 0.99, 0.999} {
		require.InEpsilon(t, part*100_000*1000, h.Quantile(part), 0.01, "quantile %v", part)
	}
	require.InEpsilon(t, 100*time.Millisecond, h.Quantile(1), 0.01)
	h.Observe(1<<63 - 1)
	h.Observe(-1)
	require.EqualValues(t, 100_002, h.Count())
	require.Zero(t, testing.AllocsPerRun(100, func() { h.Observe(time.Millisecond) }))
}

func TestResultMerge(t *testing.T) {
	t.Parallel()
	a := load.Result{Pairs: 1, Elapsed: time.Second, Acquire: &load.Histogram{}, Pair: &load.Histogram{},
		Grants: []int64{1}}
	a.Acquire.Observe(time.Millisecond)
	data, err := json.Marshal(a)
	require.NoError(t, err)
	var b, sum load.Result
	require.NoError(t, json.Unmarshal(data, &b))
	require.Equal(t, a, b)
	sum.Merge(a)
	sum.Merge(b)
	require.EqualValues(t, 2, sum.Pairs)
	require.Equal(t, time.Second, sum.Elapsed)
	require.Equal(t, []int64{1, 1}, sum.Grants)
	require.EqualValues(t, 2, sum.Acquire.Count())
}

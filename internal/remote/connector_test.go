package remote_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// inspector is a backend in either mode.
type inspector interface {
	Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error)
}

// onHosts runs a test in virtual time, in each mode, with a backend for three members that was not used yet.
func onHosts(t *testing.T, config remote.Config, change func(h *host), test func(t *testing.T, c *cluster,
	b *remote.Backend, asked inspector)) {
	t.Helper()
	for _, mode := range []engine.Mode{engine.Correctness, engine.Efficiency} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{network: newNetwork()}
				for i, address := range []string{"a:7420", "b:7420", "c:7420"} {
					m, h := c.network.start(t, address)
					m.inspect = func() (*pb.Lock, error) { return c.inspect(i, engine.Efficiency) }
					c.members, c.hosts = append(c.members, m), append(c.hosts, h)
					change(h)
				}
				config.Dial = c.network.config().Dial
				b := backend(t, config, c.members...)
				asked := inspector(b)
				if mode == engine.Efficiency {
					asked = b.Efficiency()
				}
				test(t, c, b, asked)
			})
		})
	}
}

// inspectConcurrently returns the errors of concurrent calls.
func inspectConcurrently(asked inspector, callers int) []error {
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = asked.Inspect(context.Background(), "a") })
	}
	wg.Wait()
	return errs
}

// While no address answers, each of many callers waits no longer than a single one: they share the tries to connect.
func TestManyCallersOfUnreachableMembers(t *testing.T) {
	onHosts(t, remote.Config{}, (*host).vanish, func(t *testing.T, _ *cluster, _ *remote.Backend, asked inspector) {
		began := time.Now()
		for _, err := range inspectConcurrently(asked, 20) {
			require.ErrorIs(t, err, wire.ErrUnreachable)
			require.ErrorContains(t, err, ":7420", "the error names the member")
		}
		require.Less(t, time.Since(began), remote.DefaultTimeout+2500*time.Millisecond)
	})
}

// While connections are refused at once, many callers make no more tries to connect than a single one.
func TestManyCallersOfMembersThatRefuse(t *testing.T) {
	refuse := func(h *host) { h.refuses, h.dialTime = true, time.Millisecond }
	onHosts(t, remote.Config{}, refuse, func(t *testing.T, c *cluster, _ *remote.Backend, asked inspector) {
		for _, err := range inspectConcurrently(asked, 100) {
			require.ErrorIs(t, err, wire.ErrUnreachable)
		}
		require.Less(t, c.network.dialed(), 100)
	})
}

// The time of the first try counts, too.
func TestFirstTryIsPartOfTheSearch(t *testing.T) {
	config := remote.Config{Timeout: 300 * time.Millisecond}
	onHosts(t, config, (*host).vanish, func(t *testing.T, _ *cluster, _ *remote.Backend, asked inspector) {
		began := time.Now()
		_, err := asked.Inspect(limited(t), "a")
		require.ErrorIs(t, err, wire.ErrUnreachable)
		require.Less(t, time.Since(began), 600*time.Millisecond)
	})
}

// The try to connect does not end with the call that began it, so calls that are shorter than it make progress.
func TestShortCallsConnectTogether(t *testing.T) {
	slow := func(h *host) { h.dialTime = 400 * time.Millisecond }
	onHosts(t, remote.Config{}, slow, func(t *testing.T, c *cluster, _ *remote.Backend, asked inspector) {
		short := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := asked.Inspect(ctx, "a")
			return err
		}
		err := short()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, wire.ErrUnreachable)
		require.ErrorContains(t, err, ":7420", "the error names the member")
		for tries := 1; err != nil; tries++ {
			require.Less(t, tries, 10)
			err = short()
		}
		require.Equal(t, 1, c.network.dialed())
	})
}

// Close ends a try to connect, and the calls that wait for it.
func TestCloseEndsATryToConnect(t *testing.T) {
	onHosts(t, remote.Config{}, (*host).vanish, func(t *testing.T, _ *cluster, b *remote.Backend, asked inspector) {
		time.AfterFunc(100*time.Millisecond, func() { _ = b.Close() })
		began := time.Now()
		for _, err := range inspectConcurrently(asked, 2) {
			require.ErrorContains(t, err, "the backend is closed")
		}
		require.Equal(t, 100*time.Millisecond, time.Since(began))
	})
}

// The time that a call has waited for its lock is no part of its search for the next leader.
func TestWaiterSearchesForTheNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		former, _ := network.start(t, "former:7420")
		next, _ := network.start(t, "next:7420")
		next.answer = leader(1)
		former.answersAfter(func(*pb.Operation) time.Duration { return 0 })
		s, _, _ := openSession(t, backend(t, network.config(), former))
		former.set(func() {
			former.answer = func(*pb.Operation) *pb.Answer {
				former.mu.Unlock()
				time.Sleep(2 * remote.DefaultTimeout)
				former.mu.Lock()
				return &pb.Answer{Error: wire.FromError(&wire.NotLeaderError{Leader: next.address, Text: "not the leader"})}
			}
		})
		waiting := one(1)
		waiting.Wait = true
		_, err := s.Acquire(limited(t), waiting)
		require.NoError(t, err)
	})
}

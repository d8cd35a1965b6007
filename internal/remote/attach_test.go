package remote_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// manyLeases are so many that the client expects a large answer to an attach.
const manyLeases = 1001

// onLargeSession runs a test in virtual time: a client holds leases that member 0 has granted,
// with a short TTL, and from now on member 1 leads. attached is called at the first attach there:
// none is answered, unless it is nil. All leases must outlast what the test does.
func onLargeSession(t *testing.T, leases int, ttl time.Duration, attached func(c *cluster),
	test func(t *testing.T, c *cluster, client *lease.Client), change ...func(*lease.Policy)) {
	t.Helper()
	onCluster(t, engine.Correctness, func(t *testing.T, c *cluster, _ *lease.Client) {
		var mu sync.Mutex
		hangs := false
		var holds []*pb.Hold
		for i, m := range c.members {
			m.set(func() {
				m.answer = func(op *pb.Operation) *pb.Answer {
					c.mu.Lock()
					err := c.notLeader(i, engine.Correctness)
					c.mu.Unlock()
					mu.Lock()
					defer mu.Unlock()
					switch call := op.Call.(type) {
					case *pb.Operation_Attach:
						if attached != nil && i == 1 && (err == nil || hangs) {
							if !hangs {
								attached(c)
							}
							hangs = true
							return waits
						}
						return &pb.Answer{Holds: holds, Error: wire.FromError(err)}
					case *pb.Operation_Acquire:
						if err != nil || call.Acquire.Resources[0] == "late" && i != 2 {
							break
						}
						holds = append(holds, &pb.Hold{Nonce: call.Acquire.Nonce, Token: call.Acquire.Nonce})
						return &pb.Answer{Token: call.Acquire.Nonce, Mode: wire.ModeText(engine.Correctness), Name: "name"}
					}
					return &pb.Answer{Error: wire.FromError(err)}
				}
			})
		}
		b, err := remote.New(c.addresses(), c.network.config())
		require.NoError(t, err)
		policy := lease.Policy{Mode: engine.Correctness, TTL: ttl}
		for _, f := range change {
			f(&policy)
		}
		client, err := lease.New(b, lease.WithOnClose(func(context.Context) error { return b.Close() }),
			lease.WithPolicies(policy))
		require.NoError(t, err)
		c.clients = append(c.clients, client)
		var held []*lease.Lease
		for i := range leases {
			l, err := client.Acquire(limited(t), fencing.Resource(fmt.Sprint(i)))
			require.NoError(t, err)
			held = append(held, l)
		}
		time.Sleep(time.Minute)
		c.mu.Lock()
		c.leader = 1
		c.mu.Unlock()
		test(t, c, client)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, l := range held {
			require.NoError(t, l.Err())
		}
	})
}

// stopLeader stops the member that leads, and member 2 is elected.
func stopLeader(c *cluster) {
	c.hosts[1].stop()
	c.elect(2)
}

// A client with many leases notices that the leader is stopped while it lists them, whatever
// calls it makes meanwhile.
func TestLeaderIsStoppedDuringALargeAttach(t *testing.T) {
	for _, ttl := range []time.Duration{6 * time.Second, 10 * time.Second} {
		for name, calls := range map[string]func(t *testing.T, c *cluster, client *lease.Client){
			"renewals": func(*testing.T, *cluster, *lease.Client) {},
			"waiter": func(t *testing.T, _ *cluster, client *lease.Client) {
				_, err := client.Acquire(limited(t), "late")
				require.NoError(t, err)
			},
			"short calls": func(t *testing.T, _ *cluster, client *lease.Client) {
				for range 200 {
					ctx, cancel := context.WithTimeout(limited(t), 300*time.Millisecond)
					_, _ = client.TryAcquire(ctx, "late")
					cancel()
				}
			},
			"callers that take turns": takeTurns,
		} {
			t.Run(fmt.Sprintf("%v/%s", ttl, name), func(t *testing.T) {
				onLargeSession(t, manyLeases, ttl, stopLeader, calls)
			})
		}
	}
}

// The answer to an attach of many leases delays the heartbeats of the member, which is not left for that.
func TestLargeAttachIsNotSilence(t *testing.T) {
	onLargeSession(t, manyLeases, 30*time.Second, nil, func(t *testing.T, c *cluster, _ *lease.Client) {
		leader := c.members[1]
		leader.set(func() { leader.attachTime = 2500 * time.Millisecond })
		before := leader.opened()
		time.Sleep(time.Minute)
		require.LessOrEqual(t, leader.opened(), before+1)
	})
}

// takeTurns makes calls, of which one ends each second, so that each attaches the session for a
// second after the others, and renewals get no turn.
func takeTurns(t *testing.T, _ *cluster, client *lease.Client) {
	const callers = 5
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			for limit := i + 1; limit <= 30; limit += callers {
				ctx, cancel := context.WithTimeout(limited(t), time.Duration(min(limit, callers))*time.Second)
				_, _ = client.TryAcquire(ctx, "late")
				<-ctx.Done()
				cancel()
			}
		})
	}
	calls.Wait()
}

// A member that sends heartbeats and answers no attach is left after one renewal, also if the
// renewal ends before the time that a member has for an answer.
func TestRenewalsLeaveAMemberThatAnswersNoAttach(t *testing.T) {
	onLargeSession(t, 1, 6*time.Second, func(c *cluster) { c.elect(2) }, func(*testing.T, *cluster, *lease.Client) {})
}

// So it is if renewals are so frequent that each of them has a small part of the TTL.
func TestFrequentRenewalsLeaveAMemberThatAnswersNoAttach(t *testing.T) {
	onLargeSession(t, 1, 10*time.Second, func(c *cluster) { c.elect(2) }, func(*testing.T, *cluster, *lease.Client) {},
		func(p *lease.Policy) { p.Renew = 900 * time.Millisecond })
}

// Renewals also leave it while other calls, each too short for the answer, attach one after the other.
func TestRenewalsLeaveAMemberWhileOthersAttach(t *testing.T) {
	onLargeSession(t, 1, 10*time.Second, func(c *cluster) { c.elect(2) }, takeTurns)
}

// A renewal that begins to attach late, because another call attached before and had no answer, leaves the member too.
func TestRenewalThatAttachesAfterAnotherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		m, _ := network.start(t, "member:7420")
		m.answersAfter(func(*pb.Operation) time.Duration { return 0 })
		s, _, _ := openSession(t, backend(t, network.config(), m))
		renew := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := s.Renew(ctx)
			return err
		}
		m.set(func() { m.answer = breaks })
		require.Error(t, renew(time.Minute))
		m.set(func() { m.answer = nil })
		other := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 1600*time.Millisecond)
			defer cancel()
			_, err := s.Acquire(ctx, one(1))
			other <- err
		}()
		synctest.Wait()
		require.ErrorIs(t, renew(2*time.Second), context.DeadlineExceeded)
		require.ErrorIs(t, <-other, context.DeadlineExceeded)
		m.answersAfter(func(*pb.Operation) time.Duration { return 0 })
		streams := m.opened()
		require.NoError(t, renew(time.Minute))
		require.Equal(t, streams+1, m.opened())
	})
}

// An attach extends the session, so a lease that is granted right after it lasts from then on.
func TestAttachExtendsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		m, _ := network.start(t, "member:7420")
		m.answer = func(op *pb.Operation) *pb.Answer {
			if op.GetRenew() != nil {
				return nil // the stream ends
			}
			return &pb.Answer{Token: 1, Mode: wire.ModeText(engine.Correctness)}
		}
		clock := engine.MonotonicClock()
		s, err := backend(t, network.config(), m).Open(limited(t), engine.SessionConfig{ID: engine.NewSessionID(),
			TTL: time.Minute, Clock: clock})
		require.NoError(t, err)
		time.Sleep(50 * time.Second)
		attached := clock.Now()
		_, err = s.Renew(limited(t))
		require.ErrorIs(t, err, engine.ErrUncertain)
		grant, err := s.Acquire(limited(t), request)
		require.NoError(t, err)
		require.Zero(t, attached.Since(grant.Sent))
	})
}

// A renewal that has little time left for its attach does not close the connection: the next one needs it.
func TestShortRenewalKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		m, h := network.start(t, "member:7420")
		broken := true
		m.set(func() {
			m.answer = func(op *pb.Operation) *pb.Answer {
				switch {
				case op.GetAttach() != nil:
					m.mu.Unlock()
					time.Sleep(900 * time.Millisecond)
					m.mu.Lock()
				case op.GetRenew() != nil && broken:
					broken = false
					return nil // the stream ends
				}
				return &pb.Answer{}
			}
		})
		s, err := backend(t, network.config(), m).Open(limited(t), engine.SessionConfig{ID: engine.NewSessionID(),
			TTL: time.Minute, Clock: engine.SystemClock()})
		require.NoError(t, err)
		renew := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := s.Renew(ctx)
			return err
		}
		require.Error(t, renew(time.Minute))
		h.stop()
		time.AfterFunc(1300*time.Millisecond, h.resume)
		require.Error(t, renew(2*time.Second))
		streams := m.opened()
		require.NoError(t, renew(time.Minute))
		require.Equal(t, streams, m.opened())
	})
}

// answersAfter makes the member answer each operation with success after a delay.
func (m *member) answersAfter(delay func(op *pb.Operation) time.Duration) {
	m.set(func() {
		m.answer = func(op *pb.Operation) *pb.Answer {
			m.mu.Unlock() // other streams are served meanwhile
			time.Sleep(delay(op))
			m.mu.Lock()
			return &pb.Answer{}
		}
	})
}

// renewals returns renewals of one session in each mode, with a limit.
func renewals(t *testing.T, b *remote.Backend) map[string]func(limit time.Duration) error {
	t.Helper()
	s, err := b.Open(limited(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute,
		Clock: engine.SystemClock()})
	require.NoError(t, err)
	held := []engine.Held{{Session: engine.NewSessionID(), Nonce: 1, Token: 1}}
	return map[string]func(limit time.Duration) error{
		"correctness": func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := s.Renew(ctx)
			return err
		},
		"efficiency": func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := b.Efficiency().Renew(ctx, held)[0]
			if !errors.Is(err, context.DeadlineExceeded) {
				return nil // the member answers, although it confirms no lease
			}
			return err
		},
	}
}

// The deadline of a renewal may be a caller's. If it is shorter than a round trip it says nothing about the member, and
// the connection stays open for all sessions that share it.
func TestBriefRenewalKeepsTheConnection(t *testing.T) {
	for _, limit := range []time.Duration{-time.Second, 0, 10 * time.Millisecond, 490 * time.Millisecond} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := newNetwork()
				m, _ := network.start(t, "member:7420")
				m.answersAfter(func(op *pb.Operation) time.Duration {
					if op.GetRenew() == nil {
						return 0
					}
					return max(50*time.Millisecond, limit+time.Millisecond)
				})
				for mode, renew := range renewals(t, backend(t, network.config(), m)) {
					require.NoError(t, renew(time.Minute), mode)
					streams := m.opened()
					for range 20 {
						require.ErrorIs(t, renew(limit), context.DeadlineExceeded, mode)
						time.Sleep(time.Second)
					}
					require.NoError(t, renew(time.Minute), mode)
					require.Equal(t, streams, m.opened(), mode)
				}
			})
		})
	}
}

// So it is if the answers, one after the other, are all too late for their renewals.
func TestBriefRenewalsKeepAMemberThatAnswersLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		m, _ := network.start(t, "member:7420")
		m.answersAfter(func(*pb.Operation) time.Duration { return 40 * time.Millisecond })
		for mode, renew := range renewals(t, backend(t, network.config(), m)) {
			require.NoError(t, renew(time.Minute), mode)
			streams := m.opened()
			for range 100 {
				require.ErrorIs(t, renew(33*time.Millisecond), context.DeadlineExceeded, mode)
				time.Sleep(17 * time.Millisecond)
			}
			require.Equal(t, streams, m.opened(), mode)
		}
	})
}

// Many renewals without an answer show that the member is stuck, also if each of them is brief.
func TestBriefRenewalsLeaveAMemberThatAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		m, _ := network.start(t, "member:7420")
		m.answersAfter(func(*pb.Operation) time.Duration { return 0 })
		for mode, renew := range renewals(t, backend(t, network.config(), m)) {
			require.NoError(t, renew(time.Minute), mode)
			streams := m.opened()
			m.set(func() { m.answer = nil })
			for range 9 {
				require.ErrorIs(t, renew(100*time.Millisecond), context.DeadlineExceeded, mode)
			}
			require.Equal(t, streams+1, m.opened(), mode)
			m.answersAfter(func(*pb.Operation) time.Duration { return 0 })
			require.NoError(t, renew(time.Minute), mode)
		}
	})
}

// A brief renewal that waits while another call attaches the session leaves the connection to that call.
func TestBriefRenewalKeepsTheConnectionDuringAnAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		m, _ := network.start(t, "member:7420")
		m.answersAfter(func(*pb.Operation) time.Duration { return 0 })
		renew := renewals(t, backend(t, network.config(), m))["correctness"]
		m.set(func() { m.answer = breaks })
		require.Error(t, renew(time.Minute))
		m.answersAfter(func(op *pb.Operation) time.Duration {
			if op.GetAttach() == nil {
				return 0
			}
			return time.Second
		})
		attaching := make(chan error, 1)
		go func() { attaching <- renew(time.Minute) }()
		time.Sleep(100 * time.Millisecond)
		require.ErrorIs(t, renew(10*time.Millisecond), context.DeadlineExceeded)
		require.NoError(t, <-attaching)
	})
}

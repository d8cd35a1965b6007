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

func TestUncertainIsAskedAgainWithTheSameNonce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var nonces []engine.Nonce
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				nonces = append(nonces, r.Nonce)
				g, err := next(ctx, r)
				if len(nonces) < 4 {
					return engine.Grant{}, engine.ErrUncertain // granted, but the answer was lost
				}
				return g, err
			}
		})
		l := s.acquire(lease.WithWaitLimit(time.Minute))
		require.Equal(t, []engine.Nonce{1, 1, 1, 1}, nonces)
		require.Equal(t, fencing.Token(1), l.Token(), "granted once")
		require.Equal(t, []string{"waiting", "waiting", "waiting", "acquired"}, s.told.read().names)
	})
}

func TestAnUnknownOutcomeIsGivenBack(t *testing.T) {
	tests := []struct {
		name string
		fail func(ctx context.Context) error
	}{
		{"uncertain", func(context.Context) error { return engine.ErrUncertain }},
		{"no sentinel", func(context.Context) error { return errors.New("connection reset") }},
		{"uncertain and unavailable", func(context.Context) error { return errors.Join(engine.ErrUncertain, engine.ErrUnavailable) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetup(t)
				s.tap(func(on *taps) {
					on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
						_, err := next(ctx, r)
						require.NoError(t, err)
						return engine.Grant{}, tt.fail(ctx)
					}
				})
				_, err := s.client.TryAcquire(t.Context(), "a")
				require.Error(t, err)
				synctest.Wait()
				_, err = s.other().TryAcquire(t.Context(), "a")
				require.NoError(t, err, "nobody holds what nobody knows of")
			})
		})
	}
}

// The wait limit ends the call with ErrHeld. That is no answer of the service:
// the attempt must leave the queue all the same.
func TestGivingUpLeavesTheQueue(t *testing.T) {
	giveUp := map[string]func(s *setup) (context.Context, []lease.AcquireOption){
		"wait limit": func(s *setup) (context.Context, []lease.AcquireOption) {
			return s.Context(), []lease.AcquireOption{lease.WithWaitLimit(time.Second)}
		},
		"context with a misleading cause": func(s *setup) (context.Context, []lease.AcquireOption) {
			ctx, cancel := context.WithCancelCause(s.Context())
			time.AfterFunc(time.Second, func() { cancel(engine.ErrHeld) })
			return ctx, nil
		},
		"context of another lease": func(s *setup) (context.Context, []lease.AcquireOption) {
			l, err := s.client.Acquire(s.Context(), "outer")
			require.NoError(s, err)
			time.AfterFunc(time.Second, func() { _ = s.memory.Break(context.Background(), "outer", l.Token()) })
			return l.Context(), nil
		},
		"context": func(s *setup) (context.Context, []lease.AcquireOption) {
			ctx, cancel := context.WithTimeout(s.Context(), time.Second)
			s.Cleanup(cancel)
			return ctx, nil
		},
	}
	for name, how := range giveUp {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetup(t)
				s.tap(func(on *taps) {
					on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
						g, err := next(ctx, r)
						if ctx.Err() != nil {
							err = context.Cause(ctx) // as many backends do
						}
						return g, err
					}
				})
				_, err := s.other().Acquire(t.Context(), "a")
				require.NoError(t, err)
				kept, err := s.client.Acquire(t.Context(), "kept")
				require.NoError(t, err)
				ctx, options := how(s)
				_, err = s.client.Acquire(ctx, "a", options...)
				require.Error(t, err)
				synctest.Wait()
				require.NoError(t, kept.Err(), "the session is not over because a caller gave up")
				status, err := s.memory.Inspect(t.Context(), "a")
				require.NoError(t, err)
				require.Empty(t, status.Waiters)
			})
		})
	}
}

func TestWaitingOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.memory.Fail(engine.ErrUnavailable)
		go func() {
			time.Sleep(30 * time.Second)
			s.memory.Fail(nil)
		}()
		s.acquire()
		require.Equal(t, "acquired", s.told.read().names[len(s.told.read().names)-1])
		require.ErrorIs(t, s.told.read().waiting[0].Err, engine.ErrUnavailable)
		require.GreaterOrEqual(t, s.told.read().acquired[0].Elapsed, 30*time.Second)
	})
}

func TestTryAcquireAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.memory.Fail(engine.ErrUnavailable)
		start := time.Now()
		_, err := s.client.TryAcquire(t.Context(), "a")
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.Zero(t, time.Since(start))
		s.memory.Fail(nil)
	})
}

func TestGivingUpInAnOutageIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.memory.Fail(engine.ErrUnavailable)
		_, err := s.client.Acquire(t.Context(), "a", lease.WithWaitLimit(5*time.Second))
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.NotErrorIs(t, err, engine.ErrHeld, "nobody knows whether it is held")
		require.ErrorContains(t, err, "gave up after 5s")
		s.memory.Fail(nil)
	})
}

func TestALostSessionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		first := s.acquire()
		s.memory.ExpireAll()
		<-first.Done()
		require.ErrorIs(t, first.Err(), engine.ErrExpired)
		second, err := s.client.TryAcquire(t.Context(), "a")
		require.NoError(t, err)
		require.True(t, second.Token().Newer(first.Token()))
	})
}

func TestAWaiterWhoseSessionIsLostQueuesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		held, err := s.other().Acquire(t.Context(), "a")
		require.NoError(t, err)
		go func() {
			time.Sleep(time.Second)
			s.memory.ExpireAll()
		}()
		l := s.acquire()
		require.True(t, l.Token().Newer(held.Token()))
	})
}

func TestAGrantOfTheWrongModeIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				g, err := next(ctx, r)
				g.Mode = engine.Efficiency
				return g, err
			}
		})
		_, err := s.client.Acquire(t.Context(), "a", lease.WithMode(engine.Correctness))
		require.ErrorIs(t, err, engine.ErrModeMismatch)
		synctest.Wait()
		_, err = s.other().TryAcquire(t.Context(), "a")
		require.NoError(t, err)
	})
}

func TestAGrantWithoutATokenIsNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				g, err := next(ctx, r)
				g.Token = fencing.None
				return g, err
			}
		})
		_, err := s.client.TryAcquire(t.Context(), "a")
		require.ErrorIs(t, err, engine.ErrUncertain)
		synctest.Wait()
		_, err = s.other().TryAcquire(t.Context(), "a")
		require.NoError(t, err)
	})
}

func TestBrokenBeforeTheGrantArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		broken := false
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				g, err := next(ctx, r)
				if !broken {
					broken = true
					require.NoError(t, s.memory.Break(ctx, "a", g.Token))
				}
				return g, err
			}
		})
		l := s.acquire()
		require.Equal(t, fencing.Token(2), l.Token(), "the first grant was taken away before it could be used")
	})
}

// The service ends the session while the grant is on its way, and the client
// learns of it first, from a keep-alive.
func TestAGrantOfADeadSessionIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var calls counter
		s.tap(func(on *taps) {
			on.open = func(ctx context.Context, c engine.SessionConfig, next func(context.Context, engine.SessionConfig) (engine.Session, error)) (engine.Session, error) {
				c.Lost = nil // a service that does not push
				return next(ctx, c)
			}
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				g, err := next(ctx, r)
				if calls.Add(1) == 1 {
					s.memory.ExpireAll()
					time.Sleep(ttl/3 + time.Second) // a keep-alive is refused meanwhile
				}
				return g, err
			}
		})
		l := s.acquire()
		require.Equal(t, fencing.Token(2), l.Token(), "the first was granted in a session that is over")
		require.NoError(t, l.Err())
	})
}

func TestPoliciesDecideTheMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, lease.WithPolicies(engine.Policy{Prefix: "fast/", Mode: engine.Efficiency}, engine.Policy{Mode: engine.Correctness}))
		require.NoError(t, s.memory.SetPolicy(engine.Policy{Prefix: "fast/", Mode: engine.Efficiency}))
		l, err := s.client.Acquire(t.Context(), "fast/a")
		require.NoError(t, err)
		require.Equal(t, engine.Efficiency, l.Mode())
		_, err = s.client.Acquire(t.Context(), "fast/b", lease.WithMode(engine.Correctness))
		require.ErrorIs(t, err, engine.ErrModeMismatch, "a call cannot choose")
		_, err = s.client.Acquire(t.Context(), "fast/b", lease.WithSet("slow"))
		require.ErrorIs(t, err, engine.ErrModeMismatch, "a set is of one mode")

		require.ErrorIs(t, s.memory.SetPolicy(engine.Policy{Prefix: "fast/", Mode: engine.Correctness}), engine.ErrHeld,
			"a lock in use keeps its mode: else there would be two holders")
	})
}

func TestASetTakesTheShortestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, lease.WithPolicies(engine.Policy{Prefix: "x/", TTL: time.Second}, engine.Policy{Prefix: "w/", TTL: time.Minute},
			engine.Policy{Prefix: "y/", TTL: time.Minute, Drift: 400 * time.Millisecond}))
		for _, set := range [][]fencing.Resource{{"w/1", "x/1"}, {"x/1", "w/1"}, {"x/2", "y/2"}} {
			start := time.Now()
			l, err := s.client.Acquire(t.Context(), set[0], lease.WithSet(set[1:]...), lease.WithoutRenewal())
			require.NoError(t, err)
			<-l.Done()
			require.Less(t, time.Since(start), time.Second)
			if set[1] == "y/2" {
				require.Equal(t, 600*time.Millisecond, time.Since(start), "and the largest drift")
			}
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	memory := newSetupOutside(t)
	for name, option := range map[string]lease.Option{
		"clock":    lease.WithClock(nil),
		"policies": lease.WithPolicies(engine.Policy{TTL: -1}),
		"name":     lease.WithName("a\n"),
	} {
		_, err := lease.New(memory, option)
		require.ErrorIs(t, err, engine.ErrInvalid, name)
	}
	_, err := lease.New(nil)
	require.ErrorIs(t, err, engine.ErrInvalid)

	c, err := lease.New(memory)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	for says, options := range map[string][]lease.AcquireOption{
		"exclude each other": {lease.WithShared(), lease.WithPermits(2)},
		"expected mode":      {lease.WithMode(engine.AnyMode)},
		"metadata key":       {lease.WithMetadata(map[string]string{"": ""})},
		"TryAcquire":         {lease.WithWaitLimit(-1)},
		"24h":                {lease.WithTTL(48 * time.Hour)},
	} {
		_, err := c.Acquire(t.Context(), "a", options...)
		require.ErrorIs(t, err, engine.ErrInvalid)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, `acquire "a"`)
	}
}

func TestWithTTLKeepsThePolicysDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, lease.WithPolicies(engine.Policy{Drift: 4 * time.Second}))
		start := time.Now()
		l := s.acquire(lease.WithTTL(8*time.Second), lease.WithoutRenewal())
		<-l.Done()
		require.Equal(t, 4*time.Second, time.Since(start))
		_, err := s.client.Acquire(t.Context(), "a", lease.WithTTL(4*time.Second))
		require.ErrorIs(t, err, engine.ErrInvalid)
		require.ErrorContains(t, err, "drift (4s)")
	})
}

func TestErrorsOfLossAreDistinct(t *testing.T) {
	all := []error{engine.ErrNotHeld, engine.ErrExpired, engine.ErrTaken}
	for i, err := range all {
		require.ErrorIs(t, fmt.Errorf("wrapped: %w", err), engine.ErrLost)
		for j, other := range all {
			require.Equal(t, i == j, errors.Is(err, other))
		}
	}
	require.NotErrorIs(t, engine.ErrReleased, engine.ErrLost)
	require.NotErrorIs(t, engine.ErrHeld, engine.ErrLost)
}

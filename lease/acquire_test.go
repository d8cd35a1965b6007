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

func TestUncertainIsRetriedWithTheSameNonce(t *testing.T) {
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
		require.Equal(t, []string{"waiting", "waiting", "waiting", "acquired"}, s.events.read().names)
	})
}

func TestUncertainAttemptIsReleased(t *testing.T) {
	tests := []struct {
		name string
		fail func(ctx context.Context) error
	}{
		{"uncertain", func(context.Context) error { return engine.ErrUncertain }},
		{"no sentinel", func(context.Context) error { return errors.New("connection reset") }},
		{"uncertain and unavailable", func(context.Context) error {
			return errors.Join(engine.ErrUncertain, engine.ErrUnavailable)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetup(t)
				s.tap(func(on *taps) {
					on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
						if _, err := next(ctx, r); err != nil {
							return engine.Grant{}, err
						}
						return engine.Grant{}, tt.fail(ctx)
					}
				})
				_, err := s.client.TryAcquire(t.Context(), "a")
				require.Error(t, err)
				synctest.Wait()
				_, err = s.other().TryAcquire(t.Context(), "a")
				require.NoError(t, err, "the attempt of the first client must not hold the lock")
			})
		})
	}
}

// A member may refuse an attempt that another one has granted or queued, because its limits are lower.
func TestRefusedRepetitionIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		kept, err := s.client.Acquire(t.Context(), "kept") // and with it the session
		require.NoError(t, err)
		s.tap(func(on *taps) {
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				if r.Repeated {
					return engine.Grant{}, engine.ErrInvalid
				}
				_, err := next(ctx, r)
				return engine.Grant{}, errors.Join(engine.ErrUncertain, err)
			}
		})
		_, err = s.client.Acquire(t.Context(), "a", lease.WithWaitLimit(time.Minute))
		require.ErrorIs(t, err, engine.ErrInvalid)
		synctest.Wait()
		_, err = s.other().TryAcquire(t.Context(), "a")
		require.NoError(t, err, "the attempt of the first client must not hold the lock")
		require.NoError(t, kept.Err())
	})
}

// TestGivingUpLeavesTheQueue checks that an attempt leaves the queue when its caller
// stops waiting, also when the error looks like an answer of the service.
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
		"context of a group in which another call has failed": func(s *setup) (context.Context, []lease.AcquireOption) {
			ctx, cancel := context.WithCancelCause(s.Context())
			time.AfterFunc(time.Second, func() { cancel(engine.ErrUnavailable) })
			return ctx, nil
		},
		"context of a group in which another call was refused": func(s *setup) (context.Context, []lease.AcquireOption) {
			ctx, cancel := context.WithCancelCause(s.Context())
			time.AfterFunc(time.Second, func() { cancel(engine.ErrLimit) })
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
				require.NoError(t, kept.Err(), "the session must outlive a caller that gave up")
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
		require.Equal(t, "acquired", s.events.read().names[len(s.events.read().names)-1])
		require.ErrorIs(t, s.events.read().waiting[0].Err, engine.ErrUnavailable)
		require.GreaterOrEqual(t, s.events.read().acquired[0].Elapsed, 30*time.Second)
	})
}

// TestTryAcquireToleratesAShortOutage checks that a failover of the service is not an
// error for a caller that does not wait, and that a longer outage is.
func TestTryAcquireToleratesAShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.memory.Fail(engine.ErrUnavailable)
		time.AfterFunc(3*time.Second, func() { s.memory.Fail(nil) })
		l, err := s.client.TryAcquire(t.Context(), "a")
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))

		s.memory.Fail(engine.ErrUnavailable)
		start := time.Now()
		_, err = s.client.TryAcquire(t.Context(), "a")
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.Less(t, time.Since(start), 10*time.Second)
		s.memory.Fail(nil)

		_, err = s.other().Acquire(t.Context(), "a")
		require.NoError(t, err)
		start = time.Now()
		_, err = s.client.TryAcquire(t.Context(), "a")
		require.ErrorIs(t, err, engine.ErrHeld)
		require.Zero(t, time.Since(start), "TryAcquire does not wait for the lock")
	})
}

// TestTryAcquireDoesNotWaitForAMigration checks that TryAcquire returns at once for a
// lock that changes its mode, which may take longer than a failover.
func TestTryAcquireDoesNotWaitForAMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.tap(func(on *taps) {
			on.acquire = func(context.Context, engine.Request, acquireFunc) (engine.Grant, error) {
				return engine.Grant{}, &engine.MigratingError{Resource: "a", From: engine.Efficiency, To: engine.Correctness}
			}
		})
		start := time.Now()
		_, err := s.client.TryAcquire(t.Context(), "a")
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.Zero(t, time.Since(start))
	})
}

func TestWaitLimitInAnOutageIsNotErrHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.memory.Fail(engine.ErrUnavailable)
		_, err := s.client.Acquire(t.Context(), "a", lease.WithWaitLimit(5*time.Second))
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.NotErrorIs(t, err, engine.ErrHeld, "the service did not say whether the lock is held")
		require.ErrorContains(t, err, "gave up after 5s")
		s.memory.Fail(nil)
	})
}

// A service that does not answer has not said that the lock is held.
func TestWaitLimitWithoutAnAnswerIsNotErrHeld(t *testing.T) {
	hangs := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	for name, tt := range map[string]struct {
		taps    taps
		options []lease.AcquireOption
		want    error
	}{
		"a member cannot be reached": {want: engine.ErrUnavailable, taps: taps{
			open: func(ctx context.Context, _ engine.SessionConfig,
				_ func(context.Context, engine.SessionConfig) (engine.Session, error)) (engine.Session, error) {
				return nil, hangs(ctx)
			}}},
		"the connection hangs": {want: engine.ErrUncertain, taps: taps{
			acquire: func(ctx context.Context, _ engine.Request, _ acquireFunc) (engine.Grant, error) {
				return engine.Grant{}, fmt.Errorf("%w: %w", engine.ErrUncertain, hangs(ctx))
			}}},
		"the connection hangs after it has dropped": {want: engine.ErrUnavailable, taps: taps{
			acquire: func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				if r.Repeated {
					return engine.Grant{}, hangs(ctx)
				}
				limited, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, _ = next(limited, r)
				return engine.Grant{}, engine.ErrUncertain
			}}},
		"it waits for the lock": {want: engine.ErrHeld},
		"it waits for another call of its own holder": {want: engine.ErrHeld, options: []lease.AcquireOption{
			lease.WithHolder("x")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetup(t)
				held, err := s.other().Acquire(t.Context(), "a")
				require.NoError(t, err)
				client, err := lease.New(s.tapped, lease.WithClock(s.clock)) // without hooks
				require.NoError(t, err)
				defer func() { require.NoError(t, client.Close(context.Background())) }()
				ctx, cancel := context.WithCancel(t.Context())
				if tt.options != nil {
					go client.Acquire(ctx, "a", tt.options...)
					synctest.Wait()
				}
				s.tap(func(on *taps) { *on = tt.taps })
				_, err = client.Acquire(ctx, "a", append(tt.options, lease.WithWaitLimit(5*time.Second))...)
				require.ErrorIs(t, err, tt.want)
				require.Equal(t, tt.want == engine.ErrHeld, errors.Is(err, engine.ErrHeld))
				s.tap(func(on *taps) { *on = taps{} })
				cancel()
				require.NoError(t, held.Release(t.Context()))
			})
		})
	}
}

func TestLostSessionIsReplaced(t *testing.T) {
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

func TestWaiterWhoseSessionIsLostQueuesAgain(t *testing.T) {
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

func TestGrantOfTheWrongModeIsReleased(t *testing.T) {
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

func TestGrantWithoutATokenIsRejected(t *testing.T) {
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
		require.Equal(t, fencing.Token(2), l.Token(), "the first grant was broken before it could be used")
	})
}

// TestGrantOfALostSessionIsNotUsed ends the session while the grant is in flight. The
// client learns of it from a keep-alive before the grant arrives.
func TestGrantOfALostSessionIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var calls counter
		s.tap(func(on *taps) {
			on.open = func(ctx context.Context, c engine.SessionConfig,
				next func(context.Context, engine.SessionConfig) (engine.Session, error)) (engine.Session, error) {
				c.Lost = nil // a service that does not report losses
				return next(ctx, c)
			}
			on.acquire = func(ctx context.Context, r engine.Request, next acquireFunc) (engine.Grant, error) {
				g, err := next(ctx, r)
				if calls.Add(1) == 1 {
					s.memory.ExpireAll()
					time.Sleep(ttl/3 + time.Second) // a keep-alive fails in the meantime
				}
				return g, err
			}
		})
		l := s.acquire()
		require.Equal(t, fencing.Token(2), l.Token(), "the first grant belongs to a lost session")
		require.NoError(t, l.Err())
	})
}

func TestPoliciesDecideTheMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, lease.WithPolicies(engine.Policy{Prefix: "fast/", Mode: engine.Efficiency},
			engine.Policy{Mode: engine.Correctness}))
		require.NoError(t, s.memory.SetPolicy(engine.Policy{Prefix: "fast/", Mode: engine.Efficiency}))
		l, err := s.client.Acquire(t.Context(), "fast/a")
		require.NoError(t, err)
		require.Equal(t, engine.Efficiency, l.Mode())
		_, err = s.client.Acquire(t.Context(), "fast/b", lease.WithMode(engine.Correctness))
		require.ErrorIs(t, err, engine.ErrModeMismatch, "a call cannot choose the mode")
		_, err = s.client.Acquire(t.Context(), "fast/b", lease.WithSet("slow"))
		require.ErrorIs(t, err, engine.ErrModeMismatch, "a set must have one mode")

		require.ErrorIs(t, s.memory.SetPolicy(engine.Policy{Prefix: "fast/", Mode: engine.Correctness}), engine.ErrHeld,
			"a lock in use keeps its mode, otherwise it could have two holders")
	})
}

func TestSetTakesTheShortestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, lease.WithPolicies(engine.Policy{Prefix: "x/", TTL: time.Second},
			engine.Policy{Prefix: "w/", TTL: time.Minute},
			engine.Policy{Prefix: "y/", TTL: time.Minute, Drift: 400 * time.Millisecond}))
		for _, set := range [][]fencing.Resource{{"w/1", "x/1"}, {"x/1", "w/1"}, {"x/2", "y/2"}} {
			start := time.Now()
			l, err := s.client.Acquire(t.Context(), set[0], lease.WithSet(set[1:]...), lease.WithoutRenewal())
			require.NoError(t, err)
			<-l.Done()
			require.Less(t, time.Since(start), time.Second)
			if set[1] == "y/2" {
				require.Equal(t, 600*time.Millisecond, time.Since(start), "the set takes the largest drift")
			}
		}
	})
}

// An option does not change with the slice that it was made from, which Elect would notice at its next campaign.
func TestOptionsKeepTheirSet(t *testing.T) {
	c := newClient()
	defer c.Close(t.Context())
	more := []fencing.Resource{"b"}
	set := lease.WithSet(more...)
	more[0] = "c"
	l, err := c.Acquire(t.Context(), "a", set)
	require.NoError(t, err)
	require.Equal(t, []fencing.Resource{"a", "b"}, l.Resources())
}

func TestOptionsAreChecked(t *testing.T) {
	memory := newMemory(t)
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

func TestLossErrorsAreDistinct(t *testing.T) {
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

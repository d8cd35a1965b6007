package remote_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// cluster is three members with a leader. They agree about the grants, which they keep for
// both modes.
type cluster struct {
	network *network
	members []*member
	hosts   []*host
	clients []*lease.Client

	mu     sync.Mutex
	leader int    // as the members that run know it
	held   uint64 // the nonce of the holder, 0 if the lock is free
	nonces []uint64
}

// onCluster runs a test in virtual time, with a client of a cluster whose member 0 leads.
func onCluster(t *testing.T, mode engine.Mode, test func(t *testing.T, c *cluster, client *lease.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{network: newNetwork()}
		for i := range 3 {
			m, h := c.network.start(t, fmt.Sprintf("member-%d:7420", i))
			m.answer = func(op *pb.Operation) *pb.Answer { return c.answer(i, mode, op) }
			m.inspect = func() (*pb.Lock, error) { return c.inspect(i, mode) }
			m.topology = version(1)
			c.members, c.hosts = append(c.members, m), append(c.hosts, h)
		}
		client := c.dial(t, mode)
		t.Cleanup(func() {
			for _, client := range c.clients {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				require.NoError(t, client.Close(ctx))
				cancel()
			}
		})
		test(t, c, client)
	})
}

// dial returns a client that asks the members in turn, beginning with member 0.
func (c *cluster) dial(t *testing.T, mode engine.Mode) *lease.Client {
	t.Helper()
	var b *remote.Backend
	for b == nil || mode == engine.Efficiency && b.FirstEfficiencyMember() != c.members[0].address {
		var err error
		b, err = remote.New([]string{c.members[0].address, c.members[1].address, c.members[2].address}, c.network.config())
		require.NoError(t, err)
	}
	engines := engine.Backend(b)
	if mode == engine.Efficiency {
		engines = b.Efficiency()
	}
	client, err := lease.New(engines, lease.WithOnClose(func(context.Context) error { return b.Close() }),
		lease.WithPolicies(lease.Policy{Mode: mode, TTL: time.Minute}))
	require.NoError(t, err)
	c.clients = append(c.clients, client)
	return client
}

// elect makes another member the leader after the time of an election.
func (c *cluster) elect(i int) {
	time.AfterFunc(1200*time.Millisecond, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leader = i
	})
}

// notLeader returns the answer of a follower, nil at the leader.
func (c *cluster) notLeader(i int, mode engine.Mode) error {
	if mode == engine.Efficiency || c.leader == i {
		return nil
	}
	return &wire.NotLeaderError{Leader: c.members[c.leader].address, Text: "not the leader"}
}

func (c *cluster) answer(i int, mode engine.Mode, op *pb.Operation) *pb.Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.notLeader(i, mode); err != nil {
		return &pb.Answer{Error: wire.FromError(err)}
	}
	a := &pb.Answer{}
	switch call := op.Call.(type) {
	case *pb.Operation_Attach:
		if c.held != 0 {
			a.Holds = []*pb.Hold{{Nonce: c.held, Token: c.held}}
		}
	case *pb.Operation_Acquire:
		c.nonces = append(c.nonces, call.Acquire.Nonce)
		if c.held != 0 && c.held != call.Acquire.Nonce {
			if call.Acquire.Wait {
				return waits
			}
			return &pb.Answer{Error: wire.FromError(engine.ErrHeld)}
		}
		c.held = call.Acquire.Nonce
		a.Token, a.Mode, a.Name = call.Acquire.Nonce, wire.ModeText(mode), "name"
	case *pb.Operation_Release:
		if c.held == call.Release.Nonce {
			c.held = 0
		}
	}
	return a
}

func (c *cluster) inspect(i int, mode engine.Mode) (*pb.Lock, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.notLeader(i, mode); err != nil {
		return nil, err
	}
	status := engine.Status{Resource: "a", Mode: mode}
	if c.held != 0 {
		status.Holders = []engine.Party{{Holder: "holder", Token: fencing.Token(c.held)}}
	}
	return wire.FromStatusOf(status, time.Now()), nil
}

// limited returns a context that ends a call that hangs, in virtual time.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// within runs a call that must succeed within three seconds.
func within(t *testing.T, what string, call func() error) {
	t.Helper()
	began := time.Now()
	require.NoError(t, call(), what)
	require.LessOrEqual(t, time.Since(began), 3*time.Second, what)
}

// A paused member costs each call at most three seconds, and no error: the operations move on
// to another member.
func TestStoppedMember(t *testing.T) {
	for _, mode := range []engine.Mode{engine.Correctness, engine.Efficiency} {
		calls := map[string]func(t *testing.T, c *cluster, client *lease.Client) error{
			"acquire": func(t *testing.T, _ *cluster, client *lease.Client) error {
				_, err := client.Acquire(limited(t), "a")
				return err
			},
			"try": func(t *testing.T, _ *cluster, client *lease.Client) error {
				_, err := client.TryAcquire(limited(t), "a")
				return err
			},
			"inspect": func(t *testing.T, _ *cluster, client *lease.Client) error {
				_, err := client.Inspect(limited(t), "a")
				return err
			},
		}
		for name, call := range calls {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				onCluster(t, mode, func(t *testing.T, c *cluster, client *lease.Client) {
					warm(t, client)
					c.hosts[0].stop()
					c.elect(1)
					within(t, name, func() error { return call(t, c, client) })
					within(t, name+" by a client that knows no member yet", func() error {
						fresh := c.dial(t, mode)
						if name != "inspect" {
							c.free()
						}
						return call(t, c, fresh)
					})
				})
			})
		}
		t.Run(mode.String()+"/release", func(t *testing.T) {
			onCluster(t, mode, func(t *testing.T, c *cluster, client *lease.Client) {
				l, err := client.Acquire(limited(t), "a")
				require.NoError(t, err)
				c.hosts[0].stop()
				c.elect(1)
				within(t, "release", func() error { return l.Release(limited(t)) })
				c.mu.Lock()
				defer c.mu.Unlock()
				require.Zero(t, c.held)
			})
		})
	}
}

// warm connects the client to member 0.
func warm(t *testing.T, client *lease.Client) {
	t.Helper()
	l, err := client.Acquire(limited(t), "a")
	require.NoError(t, err)
	require.NoError(t, l.Release(limited(t)))
}

// attempts returns the nonces of the acquires, in the order in which members received them.
func (c *cluster) attempts() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.nonces)
}

// free releases the lock behind the back of its holder.
func (c *cluster) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = 0
}

// A waiting acquire that is queued at a member that stops is sent to another member, with
// the same nonce.
func TestWaiterMovesOn(t *testing.T) {
	for _, mode := range []engine.Mode{engine.Correctness, engine.Efficiency} {
		t.Run(mode.String(), func(t *testing.T) {
			onCluster(t, mode, func(t *testing.T, c *cluster, client *lease.Client) {
				warm(t, client)
				c.mu.Lock()
				c.held, c.nonces = 1<<20, nil
				c.mu.Unlock()
				granted := make(chan error, 1)
				go func() {
					_, err := client.Acquire(limited(t), "a")
					granted <- err
				}()
				time.Sleep(10 * time.Second)
				require.Len(t, c.attempts(), 1, "it is queued at one member")
				c.hosts[0].stop()
				c.elect(1)
				c.free()
				within(t, "the waiter", func() error { return <-granted })
				attempts := c.attempts()
				require.Len(t, attempts, 2)
				require.Equal(t, attempts[0], attempts[1])
			})
		})
	}
}

// Calls with short contexts make progress: a call does not begin with the member that was
// silent in the call before.
func TestShortContextsMakeProgress(t *testing.T) {
	for _, mode := range []engine.Mode{engine.Correctness, engine.Efficiency} {
		for _, limit := range []time.Duration{300 * time.Millisecond, time.Second} {
			for _, connected := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%v/%v", mode, limit, connected), func(t *testing.T) {
					onCluster(t, mode, func(t *testing.T, c *cluster, client *lease.Client) {
						if connected {
							warm(t, client)
						}
						c.hosts[0].stop()
						c.elect(1)
						within(t, "calls with short contexts", func() error {
							var err error
							for range 10 {
								ctx, cancel := context.WithTimeout(limited(t), limit)
								_, err = client.TryAcquire(ctx, "a")
								cancel()
								if err == nil {
									return nil
								}
							}
							return err
						})
					})
				})
			}
		}
	}
}

// An observer learns of the next leader although the member that it asked was stopped.
func TestObserverMovesOn(t *testing.T) {
	for _, mode := range []engine.Mode{engine.Correctness, engine.Efficiency} {
		t.Run(mode.String(), func(t *testing.T) {
			onCluster(t, mode, func(t *testing.T, c *cluster, client *lease.Client) {
				l, err := client.Acquire(limited(t), "a")
				require.NoError(t, err)
				seen := make(chan lease.Leader, 10)
				ctx, cancel := context.WithCancel(limited(t))
				defer cancel()
				go func() { _ = client.Observe(ctx, "a", func(l lease.Leader) { seen <- l }) }()
				require.Equal(t, l.Token(), (<-seen).Token)
				c.hosts[0].stop()
				c.elect(1)
				c.free()
				within(t, "the observer", func() error {
					select {
					case now := <-seen:
						require.Equal(t, lease.Leader{}, now)
						return nil
					case <-time.After(time.Minute):
						return errors.New("it has seen nothing")
					}
				})
			})
		})
	}
}

// A client without an operation notices the silence, too: its next call costs nothing.
func TestIdleClientNoticesSilence(t *testing.T) {
	for _, mode := range []engine.Mode{engine.Correctness, engine.Efficiency} {
		t.Run(mode.String(), func(t *testing.T) {
			onCluster(t, mode, func(t *testing.T, c *cluster, client *lease.Client) {
				warm(t, client)
				c.hosts[0].stop()
				c.elect(1)
				time.Sleep(4 * time.Second)
				began := time.Now()
				warm(t, client)
				require.Less(t, time.Since(began), 700*time.Millisecond, "at most one short try to connect to the stopped member")
			})
		})
	}
}

// Two of three addresses answer nothing, or the kernel accepts their connections and no
// process serves them: the client finds the third one.
func TestBlackHoledAddresses(t *testing.T) {
	for name, break_ := range map[string]func(*host){"dropped": (*host).vanish, "not served": (*host).stop} {
		t.Run(name, func(t *testing.T) {
			onCluster(t, engine.Efficiency, func(t *testing.T, c *cluster, client *lease.Client) {
				break_(c.hosts[0])
				break_(c.hosts[1])
				within(t, "acquire", func() error {
					_, err := client.Acquire(limited(t), "a")
					return err
				})
				b, err := remote.New([]string{c.members[0].address, c.members[1].address, c.members[2].address}, c.network.config())
				require.NoError(t, err)
				within(t, "the topology", func() error { return b.AwaitTopology(limited(t)) })
				require.NoError(t, b.Close())
			})
		})
	}
}

// A client follows the topology of another member when the one that it follows is stopped.
func TestTopologyOfAStoppedMember(t *testing.T) {
	onCluster(t, engine.Correctness, func(t *testing.T, c *cluster, _ *lease.Client) {
		b, err := remote.New([]string{c.members[0].address, c.members[1].address, c.members[2].address}, c.network.config())
		require.NoError(t, err)
		require.NoError(t, b.AwaitTopology(limited(t)))
		time.Sleep(time.Minute)
		for i, m := range c.members {
			if m.watchers() > 0 {
				c.hosts[i].stop()
			} else {
				m.set(func() { m.topology = version(2) })
			}
		}
		within(t, "the next topology", func() error {
			_, err := b.NextTopology(limited(t), 1)
			return err
		})
		require.NoError(t, b.Close())
	})
}

// A member that continues after a pause is used again, and a client that was paused itself
// does not blame the member.
func TestStoppedMemberContinues(t *testing.T) {
	onCluster(t, engine.Correctness, func(t *testing.T, c *cluster, client *lease.Client) {
		warm(t, client)
		synctest.Wait()
		before := c.members[0].opened()
		for range 5 {
			c.hosts[0].stop()
			time.Sleep(800 * time.Millisecond)
			c.hosts[0].resume()
			time.Sleep(time.Second)
		}
		warm(t, client)
		require.Equal(t, before, c.members[0].opened(), "a short pause does not end the connection")
		c.hosts[0].stop()
		time.Sleep(10 * time.Second)
		c.hosts[0].resume()
		time.Sleep(10 * time.Second)
		within(t, "the leader is back", func() error { warm(t, client); return nil })
	})
}

// The leader needs longer to list the leases of a session than a member has for an answer, and
// than a renewal waits. The client gives it more time with each attempt, and keeps its leases.
func TestSlowAttachSucceeds(t *testing.T) {
	onCluster(t, engine.Correctness, func(t *testing.T, c *cluster, client *lease.Client) {
		held, err := client.Acquire(limited(t), "a")
		require.NoError(t, err)
		m := c.members[0]
		m.set(func() {
			answer := m.answer
			m.answer = func(op *pb.Operation) *pb.Answer {
				if op.GetAttach() != nil {
					m.mu.Unlock() // other streams are served meanwhile
					time.Sleep(8 * time.Second)
					m.mu.Lock()
				}
				return answer(op)
			}
		})
		c.hosts[0].stop() // the connection is lost
		time.Sleep(3 * time.Second)
		c.hosts[0].resume()
		time.Sleep(5 * time.Minute)
		require.NoError(t, held.Err(), "the session was not attached")
		require.NoError(t, held.Release(limited(t)))
	})
}

// A member that sends heartbeats and answers nothing, for example because its disk hangs,
// leaves the call time for another member.
func TestMemberThatAnswersNothing(t *testing.T) {
	onCluster(t, engine.Efficiency, func(t *testing.T, c *cluster, client *lease.Client) {
		warm(t, client)
		c.members[0].set(func() { c.members[0].answer = func(*pb.Operation) *pb.Answer { return waits } })
		_, err := client.TryAcquire(limited(t), "a")
		require.NoError(t, err)
	})
}

// A follower that does not know yet that the leader is gone names it. The client does not
// follow that redirect.
func TestRedirectToASilentLeader(t *testing.T) {
	onCluster(t, engine.Correctness, func(t *testing.T, c *cluster, client *lease.Client) {
		warm(t, client)
		c.hosts[0].stop()
		time.AfterFunc(1900*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.leader = 1
		})
		began := time.Now()
		_, err := client.TryAcquire(limited(t), "a")
		require.NoError(t, err)
		require.Less(t, time.Since(began), 2100*time.Millisecond, "no time was spent on the silent leader")
	})
}

// A slow hook is no silence of the member: hooks do not run on the goroutine that receives its
// messages.
func TestSlowHooksAreNotSilence(t *testing.T) {
	onCluster(t, engine.Correctness, func(t *testing.T, c *cluster, _ *lease.Client) {
		b, err := remote.New(c.addresses(), c.network.config())
		require.NoError(t, err)
		block := make(chan struct{})
		end := sync.OnceFunc(func() { close(block) })
		time.AfterFunc(30*time.Second, end)
		failures := make(chan error, 10)
		hook := func(_ context.Context, e lease.Event) {
			if e.Token == fencing.None && e.Err != nil {
				failures <- e.Err
			}
			<-block
		}
		client, err := lease.New(b, lease.WithOnClose(func(context.Context) error { return b.Close() }),
			lease.WithPolicies(lease.Policy{Mode: engine.Correctness, TTL: time.Minute}),
			lease.WithHooks(lease.Hooks{Lost: hook, Waiting: hook}))
		require.NoError(t, err)
		c.clients = append(c.clients, client)
		l, err := client.Acquire(limited(t), "a")
		require.NoError(t, err)
		m := c.members[0]
		m.set(func() {
			op := m.received[len(m.received)-1]
			lost := wire.FromError(engine.ErrTaken)
			m.notices = []*pb.Notice{{Session: op.Session, Nonce: op.GetAcquire().Nonce, Lost: lost}}
			m.answer = func(op *pb.Operation) *pb.Answer {
				if call := op.GetAcquire(); call != nil && call.Wait {
					m.notices = append(m.notices, &pb.Notice{Session: op.Session, Nonce: call.Nonce})
				}
				return c.answer(0, engine.Correctness, op)
			}
		})
		waiting := make(chan error, 1)
		go func() {
			_, err := client.Acquire(limited(t), "a")
			waiting <- err
		}()
		time.Sleep(10 * time.Second)
		require.ErrorIs(t, l.Err(), lease.ErrTaken)
		require.Empty(t, failures, "the waiter is still connected")
		end()
		c.free()
		c.hosts[0].stop() // the waiter moves on, and asks again
		c.elect(1)
		within(t, "the waiter", func() error { return <-waiting })
	})
}

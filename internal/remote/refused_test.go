package remote_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// followed returns a backend that has the topology of a member, and the number of that
// member.
func (c *cluster) followed(t *testing.T) (*remote.Backend, int) {
	t.Helper()
	b, err := remote.New(c.addresses(), c.network.config())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.AwaitTopology(limited(t)))
	time.Sleep(time.Minute)
	synctest.Wait()
	for i, m := range c.members {
		if m.watchers() > 0 {
			return b, i
		}
	}
	require.Fail(t, "no member is followed")
	return nil, 0
}

// publish gives the members a new topology, except for one.
func (c *cluster) publish(except int, topology *engine.Topology) {
	for i, m := range c.members {
		if i != except {
			m.set(func() { m.topology = topology })
		}
	}
}

func (c *cluster) addresses() (addresses []string) {
	for _, m := range c.members {
		addresses = append(addresses, m.address)
	}
	return addresses
}

// A client leaves a member that does not answer also if that member has refused the stream of
// its heartbeats before, or ended it.
func TestTopologyWithRefusedHeartbeats(t *testing.T) {
	for name, refuse := range map[string]func(*member){
		"at the start": func(m *member) { m.rejectsSessions = engine.ErrUnavailable },
		"ended later":  func(m *member) { m.endsSessions = 10 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			onCluster(t, engine.Correctness, func(t *testing.T, c *cluster, _ *lease.Client) {
				for _, m := range c.members {
					m.set(func() { refuse(m) })
				}
				b, stopped := c.followed(t)
				c.hosts[stopped].stop()
				c.publish(stopped, version(2))
				within(t, "the next topology", func() error {
					_, err := b.NextTopology(limited(t), 1)
					return err
				})
			})
		})
	}
}

// A member that refuses heartbeats and answers otherwise is not left.
func TestRefusedHeartbeatsAreAnswers(t *testing.T) {
	onCluster(t, engine.Correctness, func(t *testing.T, c *cluster, _ *lease.Client) {
		for _, m := range c.members {
			m.set(func() { m.rejectsSessions = engine.ErrUnavailable })
		}
		_, followed := c.followed(t)
		began := c.members[followed].begun()
		time.Sleep(time.Minute)
		require.Equal(t, 1, c.members[followed].watchers())
		require.Equal(t, began, c.members[followed].begun(), "the client has followed it all the time")
	})
}

// A member that refuses the topology is left for another one.
func TestRefusedTopology(t *testing.T) {
	onCluster(t, engine.Correctness, func(t *testing.T, c *cluster, _ *lease.Client) {
		b, refusing := c.followed(t)
		c.members[refusing].set(func() { c.members[refusing].rejects = engine.ErrUnavailable })
		c.publish(refusing, version(2))
		within(t, "the next topology", func() error {
			_, err := b.NextTopology(limited(t), 1)
			return err
		})
	})
}

// observe returns when the client has seen the leader.
func observe(t *testing.T, client *lease.Client) error {
	seen := errors.New("seen")
	ctx, cancel := context.WithCancelCause(limited(t))
	defer cancel(nil)
	if err := client.Observe(ctx, "a", func(lease.Leader) { cancel(seen) }); !errors.Is(err, seen) {
		return err
	}
	return nil
}

// A member that sends heartbeats but no event does not keep an observer for itself.
func TestWatchWithoutAnEvent(t *testing.T) {
	onCluster(t, engine.Efficiency, func(t *testing.T, c *cluster, client *lease.Client) {
		warm(t, client)
		c.members[0].set(func() { c.members[0].hides = true })
		began := time.Now()
		require.NoError(t, observe(t, client))
		require.Less(t, time.Since(began), 4*time.Second)
	})
}

// A member that cannot reach the Redis nodes does not keep the client from another member that
// can, whatever the call.
func TestUnavailableMember(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, client *lease.Client) error{
		"acquire": func(t *testing.T, client *lease.Client) error {
			_, err := client.TryAcquire(limited(t), "a")
			return err
		},
		"inspect": func(t *testing.T, client *lease.Client) error {
			_, err := client.Inspect(limited(t), "a")
			return err
		},
		"observe": observe,
	} {
		t.Run(name, func(t *testing.T) {
			onCluster(t, engine.Efficiency, func(t *testing.T, c *cluster, client *lease.Client) {
				warm(t, client)
				m := c.members[0]
				m.set(func() {
					m.answer = func(*pb.Operation) *pb.Answer { return &pb.Answer{Error: wire.FromError(engine.ErrUnavailable)} }
					m.inspect = func() (*pb.Lock, error) { return nil, engine.ErrUnavailable }
				})
				within(t, name, func() error { return call(t, client) })
			})
		})
	}
}

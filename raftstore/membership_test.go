package raftstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func TestJoinLeaveAndTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDisk(t, 1, DefaultLogStore)
		ctx := testContext(t)
		s := openSession(t, c.backend(), time.Hour)
		first, err := s.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err)
		for i := 1; i < 3; i++ {
			n := c.add(fmt.Sprintf("n%d", i), onDisk(t, DefaultLogStore))
			require.ErrorIs(t, n.Join(ctx, n), engine.ErrUnavailable, "a node without a cluster is not a leader")
			require.NoError(t, n.Join(ctx, c.nodes[0]))
		}
		for _, m := range c.nodes[0].Members() {
			require.True(t, m.Voter, m.ID)
		}
		c.agree()

		old := c.leader()
		require.NoError(t, old.Transfer(ctx, ""))
		eventually(t, "another leader", func() bool { next := c.leader(); return next != old && !old.Leads() })
		second, err := openSameSession(t, c, s).Acquire(ctx, lockRequest(2, "b"))
		require.NoError(t, err)
		require.True(t, second.Token.Newer(first.Token))
		require.ErrorIs(t, old.Transfer(ctx, ""), engine.ErrUnavailable)

		require.NoError(t, old.Close())
		require.NoError(t, c.leader().Remove(ctx, old.ID()), "a dead member can be removed")
		require.Len(t, c.leader().Members(), 2)
		require.ErrorIs(t, c.leader().Transfer(ctx, "nobody"), engine.ErrInvalid)
		leader := c.leader() // it serves on
		for _, n := range c.nodes {
			if n != leader && n != old {
				require.NoError(t, leader.Remove(ctx, n.ID()))
			}
		}
		require.Len(t, leader.Members(), 1)
		_, err = openSameSession(t, &cluster{t: t, nodes: []*Node{leader}}, s).Acquire(ctx, lockRequest(3, "c"))
		require.NoError(t, err)
	})
}

func TestTransferBeforeTheEndHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		old := c.leader()
		clock := engine.MonotonicClock()
		began := clock.Now()
		require.NoError(t, stop(testContext(t), old))
		c.leader()
		require.Less(t, clock.Now().Since(began), DefaultHeartbeatTimeout, "no heartbeat timeout was needed")
	})
}

// A change of the members whose caller stops waiting reports failure: it may or may not
// be committed later.
func TestMembershipChangeFailsWhenContextEnds(t *testing.T) {
	for name, change := range map[string]func(ctx context.Context, leader *Node, other string) error{
		"add": func(ctx context.Context, leader *Node, _ string) error {
			_, err := leader.AddLearner(ctx, Joiner{ID: "late", Address: "nowhere"})
			return err
		},
		"promote": func(ctx context.Context, leader *Node, other string) error {
			return leader.Promote(ctx, other, leader.raft.LastIndex())
		},
		"remove": func(ctx context.Context, leader *Node, other string) error { return leader.Remove(ctx, other) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startMemory(t, 3)
				leader := c.leader()
				other := c.nodes[0]
				if other == leader {
					other = c.nodes[1]
				}
				c.isolate(leader) // it cannot commit, and steps down later
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
				defer cancel()
				err := change(ctx, leader, other.ID())
				require.ErrorIs(t, err, engine.ErrUncertain)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				c.heal()
			})
		})
	}
}

// A node with the address of a member does not join: without an error that says why, it would try again forever.
func TestJoinWithTheAddressOfAnotherMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 3)
		ctx := testContext(t)
		leader := c.leader()
		dead := c.nodes[0]
		if dead == leader {
			dead = c.nodes[1]
		}
		require.NoError(t, dead.Close())
		replacement := Joiner{ID: "replacement", Address: dead.Address()}
		_, err := leader.AddLearner(ctx, replacement)
		require.ErrorIs(t, err, engine.ErrInvalid)
		require.NotErrorIs(t, err, engine.ErrUncertain)
		require.ErrorContains(t, err, "leased cluster remove "+dead.ID())
		require.NoError(t, leader.Remove(ctx, dead.ID()))
		_, err = leader.AddLearner(ctx, replacement)
		require.NoError(t, err)
	})
}

// endlessLog is a leader whose log a joining node never catches up with.
type endlessLog struct{ Membership }

func (endlessLog) AddLearner(context.Context, Joiner) (uint64, error) { return 1 << 40, nil }

func TestJoinFailsWhenContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		joining := c.add("late")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := joining.Join(ctx, endlessLog{c.leader()})
		require.ErrorIs(t, err, ErrBehind)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestLaggingLearnerGetsNoVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDisk(t, 1, DefaultLogStore)
		ctx := testContext(t)
		leader := c.leader()
		s := openSession(t, c.backend(), time.Hour)
		for nonce := range engine.Nonce(2 * maxLag) {
			_, err := s.Acquire(ctx, lockRequest(nonce+1, "a"))
			require.True(t, err == nil || nonce > 0)
		}
		// Its address has no listener, so it never catches up.
		index, err := leader.AddLearner(ctx, Joiner{ID: "late", Address: "nowhere"})
		require.NoError(t, err)
		require.Positive(t, index)
		require.ErrorIs(t, leader.Promote(ctx, "late", 0), ErrBehind)
		require.ErrorIs(t, leader.Promote(ctx, "unknown", index), engine.ErrInvalid)
		members := leader.Members()
		require.Len(t, members, 2)
		require.False(t, members[1].Voter)
		_, err = s.Acquire(ctx, lockRequest(1, "a"))
		require.NoError(t, err, "a dead learner does not count for the majority")
		require.NoError(t, leader.Remove(ctx, "late"))
	})
}

func TestStatusShowsTheLagOfEachMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDisk(t, 3, DefaultLogStore)
		ctx := testContext(t)
		s := openSession(t, c.backend(), time.Hour)
		c.agree()
		leader := c.leader()
		lags := func() map[string]Member {
			found := map[string]Member{}
			for _, m := range leader.Status().Members {
				found[m.ID] = m
			}
			return found
		}
		eventually(t, "all followers have the whole log", func() bool {
			for _, m := range lags() {
				if !m.LagKnown || m.Lag > 0 {
					return false
				}
			}
			return true
		})
		var behind *Node
		for _, n := range c.nodes {
			if n != leader {
				behind = n
				require.False(t, n.Status().Members[0].LagKnown, "a follower does not know the lag")
			}
		}
		require.NoError(t, behind.Close())
		for nonce := range engine.Nonce(10) {
			_, err := s.Acquire(ctx, lockRequest(nonce+1, fencing.Resource(fmt.Sprint("lock ", nonce))))
			require.NoError(t, err)
		}
		found := lags()
		require.GreaterOrEqual(t, found[behind.ID()].Lag, uint64(10))
		require.True(t, found[behind.ID()].LagKnown)
		require.Zero(t, found[leader.ID()].Lag)
	})
}

func TestPeersNeedCertificatesOffLoopback(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no tls":          {func(c *Config) { c.Address = "0.0.0.0:0" }, "loopback"},
		"no tls, outside": {func(c *Config) { c.Advertise = "192.0.2.1:7000" }, "loopback"},
		"one-sided tls":   {func(c *Config) { c.TLS = func() *tls.Config { return &tls.Config{} } }, "client certificates"},
		"no authority": {func(c *Config) {
			c.TLS = func() *tls.Config { return &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert} }
		}, "authority"},
		"half of it": {func(c *Config) {
			c.TLS = func() *tls.Config {
				return &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
			}
		}, "authority"},
		"no address": {func(c *Config) { c.Address = "" }, "address"},
		"no id":      {func(c *Config) { c.ID = "" }, "id"},
		"no dir":     {func(c *Config) { c.Dir = "" }, "dir"},
		"deadline":   {func(c *Config) { c.StoreDeadline = time.Millisecond }, "heartbeat"},
	} {
		t.Run(name, func(t *testing.T) {
			config := tcpConfig(t, "n", DefaultLogStore)
			c.change(&config)
			_, err := Open(config)
			require.ErrorIs(t, err, ErrConfig)
			require.ErrorContains(t, err, c.says)
		})
	}
}

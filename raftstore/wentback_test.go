package raftstore

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/logtest"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/raftstore/transport"
)

// acquireMany acquires locks, one after the other.
func acquireMany(t *testing.T, s engine.Session, from, to engine.Nonce) {
	t.Helper()
	for nonce := from; nonce < to; nonce++ {
		_, err := retrying{s}.Acquire(testContext(t), lockRequest(nonce, fencing.Resource(fmt.Sprint("lock ", nonce))))
		require.NoError(t, err)
	}
}

// goBack commits entries that a follower acknowledges, and replaces its data folder by an
// older one. It returns the follower, which is stopped.
func goBack(t *testing.T, c *cluster, s engine.Session) (back int) {
	t.Helper()
	leader := c.leader()
	back = (slices.Index(c.nodes, leader) + 1) % 3
	c.agree()
	old := filepath.Join(t.TempDir(), "old")
	require.NoError(t, c.nodes[back].Close())
	require.NoError(t, os.CopyFS(old, os.DirFS(c.configs[back].Dir)))
	c.restart(back)
	acquireMany(t, s, 1, 10)
	c.agree()
	require.NoError(t, c.nodes[back].Close())
	require.NoError(t, os.RemoveAll(c.configs[back].Dir))
	require.NoError(t, os.CopyFS(c.configs[back].Dir, os.DirFS(old)))
	return back
}

// A voter with an older data folder is refused by the leader that remembers what it
// acknowledged. It stops, and does not start again. The others go on. After it was removed
// and its folder was emptied, it joins as a new member.
func TestMemberThatWentBackIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		log := logtest.New(slog.LevelError)
		c := startDisk(t, 3, kind, logTo(log))
		ctx := testContext(t)
		s := openSession(t, c.backend(), time.Hour)
		back := goBack(t, c, s)
		leader, id := c.leader(), c.nodes[back].ID()
		wentBack := func() bool {
			members := leader.Status().Members
			return members[slices.IndexFunc(members, func(m Member) bool { return m.ID == id })].WentBack
		}
		require.False(t, wentBack())

		fatal, ended := c.configs[back].Fatal, make(chan error, 1)
		c.configs[back].Fatal = func(err error) { ended <- err }
		c.restart(back)
		err := firstOf(t, ended, "the member stops")
		require.ErrorIs(t, err, ErrStateLost)
		require.ErrorIs(t, err, transport.ErrWentBack)
		require.True(t, wentBack())
		require.True(t, leader.Leads())
		require.Less(t, c.nodes[back].raft.LastIndex(), leader.raft.LastIndex(), "it has received nothing")
		acquireMany(t, s, 10, 12)

		require.NoError(t, c.nodes[back].Close())
		_, err = Open(c.configs[back])
		require.ErrorIs(t, err, ErrStateLost)
		require.ErrorContains(t, err, "empty its data folder")

		require.NoError(t, leader.Remove(ctx, id))
		require.NoError(t, os.RemoveAll(c.configs[back].Dir))
		c.configs[back].Fatal = fatal
		n := c.restart(back)
		require.NoError(t, n.Join(ctx, leader))
		acquireMany(t, s, 12, 14)
		c.agree()
		require.False(t, wentBack())
		_, voter := leader.voter(id)
		require.True(t, voter)
		byLeader := slices.DeleteFunc(log.Lines(""), func(l logtest.Line) bool {
			return l.Values["id"] != leader.ID() || l.Values["member"] != id || !strings.HasPrefix(l.Message, "refused a member")
		})
		require.Len(t, byLeader, 1, "a refusal is logged once by each member")
	})
}

// The folder of a leader goes back in time. Its followers remember what it called committed.
func TestLeaderThatWentBackIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 3, kind)
		s := openSession(t, c.backend(), time.Hour)
		leader := c.leader()
		back := slices.Index(c.nodes, leader)
		c.agree()
		old := filepath.Join(t.TempDir(), "old")
		require.NoError(t, os.CopyFS(old, os.DirFS(c.configs[back].Dir)))
		acquireMany(t, s, 1, 10)
		c.agree()
		require.True(t, leader.Leads(), "nobody else has received acknowledgements")
		require.NoError(t, leader.Close())
		require.NoError(t, os.RemoveAll(c.configs[back].Dir))
		require.NoError(t, os.CopyFS(c.configs[back].Dir, os.DirFS(old)))
		ended := make(chan error, 1)
		c.configs[back].Fatal = func(err error) { ended <- err }
		c.restart(back)
		require.ErrorIs(t, firstOf(t, ended, "the member stops"), transport.ErrWentBack)
		acquireMany(t, openSameSession(t, c, s), 10, 12)
	})
}

// A member was removed and has joined again with an empty folder. A peer that missed this may
// still refuse its former folder: the member goes on. A refusal of its current folder
// stops it.
func TestFormerRefusalDoesNotStopReturnedMember(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 3, kind)
		ctx := testContext(t)
		leader := c.leader()
		i := (slices.Index(c.nodes, leader) + 1) % 3
		acquireMany(t, openSession(t, c.backend(), time.Hour), 1, 5)
		c.agree()
		former := leader.raft.LastIndex()
		require.NoError(t, c.nodes[i].Close())
		require.NoError(t, leader.Remove(ctx, c.nodes[i].ID()))
		require.NoError(t, os.RemoveAll(c.configs[i].Dir))
		ended := make(chan error, 1)
		c.configs[i].Fatal = func(err error) { ended <- err }
		require.NoError(t, c.restart(i).Join(ctx, leader))
		c.agree()
		for range 2 {
			c.nodes[i].memory.Told("peer", former)
			require.Empty(t, ended)
			require.NoError(t, c.nodes[i].Close())
			c.restart(i)
		}
		c.agree()
		c.nodes[i].memory.Told("peer", leader.raft.LastIndex())
		require.ErrorIs(t, firstOf(t, ended, "the member stops"), transport.ErrWentBack)
	})
}

// A snapshot takes the place of entries, which may include the removal and the return of a refused member.
func TestSnapshotLiftsRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDisk(t, 3, DefaultLogStore)
		back := goBack(t, c, openSession(t, c.backend(), time.Hour))
		ended := make(chan error, 1)
		c.configs[back].Fatal = func(err error) { ended <- err }
		id := c.restart(back).ID()
		firstOf(t, ended, "the member stops")
		leader := c.leader()
		require.True(t, leader.memory.IsRefused(id))
		var saved bytes.Buffer
		_, err := leader.SaveSnapshot(t.Context(), &saved)
		require.NoError(t, err)
		_, err = leader.RestoreSnapshot(t.Context(), &saved)
		require.NoError(t, err)
		require.False(t, leader.memory.IsRefused(id))
	})
}

// A member that was refused may not come back with its folder after the leader changed.
func TestRefusedMemberStaysRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDisk(t, 3, DefaultLogStore)
		s := openSession(t, c.backend(), time.Hour)
		back := goBack(t, c, s)
		ended := make(chan error, 1)
		c.configs[back].Fatal = func(err error) { ended <- err }
		c.restart(back)
		firstOf(t, ended, "the member stops")
		require.NoError(t, c.nodes[back].Close())
		for i := range c.nodes { // nobody remembers
			if i != back {
				require.NoError(t, c.nodes[i].Close())
				c.restart(i)
			}
		}
		_, err := Open(c.configs[back])
		require.ErrorIs(t, err, transport.ErrWentBack)
		c.leader()
		acquireMany(t, openSameSession(t, c, s), 20, 21)
	})
}

// The operations that change logs in other ways refuse nobody: restarts, snapshots,
// a restore, changes of the leader, and members that join again.
func TestHealthyMembersAreNotRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, kind logstore.Kind) {
		c := startDisk(t, 3, kind, func(c *Config) { c.SnapshotEntries, c.SnapshotInterval = 4, 50*time.Millisecond })
		ctx := testContext(t)
		s := openSession(t, c.backend(), time.Hour)
		nonce := engine.Nonce(1)
		for round := range 7 {
			i := round % 3
			acquireMany(t, openSameSession(t, c, s), nonce, nonce+10)
			nonce += 10
			switch old := c.nodes[i]; round {
			case 0, 1, 2: // it misses entries, and receives a snapshot
				require.NoError(t, old.Close())
				c.leader()
				acquireMany(t, openSameSession(t, c, s), nonce, nonce+20)
				nonce += 20
				c.restart(i)
			case 3: // it has entries that are not committed
				leader := c.leader()
				c.isolate(leader)
				_, err := (&cluster{t: t, nodes: []*Node{leader}}).backend().Open(ctx, s.(*Session).config)
				require.ErrorIs(t, err, engine.ErrUncertain)
				eventually(t, "another leader", func() bool { return c.leader() != leader })
				c.heal()
			case 4: // it joins again
				if c.leader() == old {
					require.NoError(t, old.Transfer(ctx, ""))
				}
				require.NoError(t, old.Close())
				require.NoError(t, c.leader().Remove(ctx, old.ID()))
				require.NoError(t, os.RemoveAll(c.configs[i].Dir))
				require.NoError(t, c.restart(i).Join(ctx, c.leader()))
			case 5:
				require.NoError(t, c.leader().Transfer(ctx, ""))
			case 6: // the members receive an older state, and one of them later
				var saved bytes.Buffer
				_, err := c.leader().SaveSnapshot(ctx, &saved)
				require.NoError(t, err)
				acquireMany(t, openSameSession(t, c, s), nonce, nonce+20)
				other := (slices.Index(c.nodes, c.leader()) + 1) % 3
				require.NoError(t, c.nodes[other].Close())
				_, err = c.leader().RestoreSnapshot(ctx, &saved)
				require.NoError(t, err)
				c.restart(other)
			}
			c.leader()
			c.agree()
			for _, n := range c.nodes {
				for _, m := range n.Status().Members {
					require.False(t, m.WentBack, "round %d: %s refuses %s", round, n.ID(), m.ID)
				}
			}
		}
	})
}

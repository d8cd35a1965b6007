package redlockadapter_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// A program that calls Init at every start repeats no token after power cuts: what Init
// assigned is on disk before a node votes.
func TestInitAfterPowerCuts(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3, testserver.RedisConfig("appendonly", "no")).withShortQuarantine()
	k := newLocker(t, f.config)
	for range 3 {
		f.init(t)
		b := f.backend(t)
		k.acquireN(b, 5) // each is above the one before
		require.NoError(t, b.Close(testContext(t)))
		f.powerCut(t, nil)
	}
}

// documentedACL returns the rules of the ACL user leased in docs/CONFIGURATION.md.
func documentedACL(t *testing.T) []string { return documentedACLOf(t, "leased") }

// documentedACLOf returns the rules of an ACL user in docs/CONFIGURATION.md.
func documentedACLOf(t *testing.T, user string) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/CONFIGURATION.md")
	require.NoError(t, err)
	found := regexp.MustCompile(`ACL SETUSER ` + user + ` (.*)`).FindSubmatch(text)
	require.NotNil(t, found)
	return strings.Fields(strings.ReplaceAll(string(found[1]), "'", ""))
}

// restrict makes the fleet use an ACL user with these rules.
func (f *fleet) restrict(t *testing.T, rules []string) {
	t.Helper()
	for i := range f.servers {
		args := []any{"acl", "setuser", "leased"}
		for _, rule := range rules {
			args = append(args, rule)
		}
		require.NoError(t, f.client(t, i).Do(testContext(t), args...).Err())
		f.config.Nodes[i] = &redis.Options{Addr: f.servers[i].Addr, Username: "leased", Password: "PASSWORD"}
	}
}

// The documented ACL is enough to initialise a fleet and to use it.
func TestDocumentedACL(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3, testserver.RedisConfig("appendonly", "no"))
	f.restrict(t, documentedACL(t))
	f.init(t)
	b, k := f.backend(t), newLocker(t, f.config)
	k.acquireN(b, 3)
	require.NoError(t, b.Sweep(testContext(t)))
	_, err := b.List(testContext(t), "", "", 10)
	require.NoError(t, err)
}

// The documented ACL of a prefix is enough to use its locks, and no others.
func TestDocumentedACLOfAPrefix(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.init(t)
	f.restrict(t, documentedACLOf(t, "jobs"))
	b, session := f.backend(t), engine.NewSessionID()
	acquire := func(nonce engine.Nonce, name fencing.Resource) (engine.Held, error) {
		return b.Acquire(testContext(t), session, 10*time.Second, request(nonce, name))
	}
	var held engine.Held
	waitFor(t, func() (ok bool) {
		var err error
		held, err = acquire(1, "jobs/1")
		return err == nil
	})
	_, err := acquire(2, "jobs/1")
	require.ErrorIs(t, err, engine.ErrHeld)
	require.NoError(t, b.Release(testContext(t), held))
	_, err = acquire(3, "other")
	require.ErrorContains(t, err, "NOPERM")
}

// A server that refuses to save its data does not count as one that has saved it. The error
// names the missing permission.
func TestRefusedSaveIsNoSave(t *testing.T) {
	t.Parallel()
	var rules []string
	for _, rule := range documentedACL(t) {
		if rule != "+bgsave" {
			rules = append(rules, rule)
		}
	}
	for name, nodes := range map[string]int{"one node": 1, "three nodes": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, nodes, testserver.RedisConfig("appendonly", "no")).withShortQuarantine()
			f.restrict(t, rules)
			waitFor(t, func() bool {
				err := redlockadapter.Init(testContext(t), f.config, fencing.None)
				require.Error(t, err)
				return strings.Contains(err.Error(), "+bgsave")
			})
			b, k := f.backend(t), newLocker(t, f.config)
			require.Empty(t, live(t, b))
			waitFor(t, func() bool {
				_, err := k.try(b)
				require.Error(t, err)
				return strings.Contains(err.Error(), "+bgsave")
			})
		})
	}
}

// A server that does not report how often it has saved its data does not count as one that has saved it.
func TestUnknownSaveIsNoSave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3)
		for _, n := range f.nodes[:2] {
			n.noSaves = true
		}
		ctx, cancel := context.WithTimeout(t.Context(), virtualTTL)
		defer cancel()
		err := redlockadapter.Init(ctx, f.config, fencing.None)
		require.ErrorContains(t, err, "its INFO has no rdb_saves")
		require.NoError(t, ctx.Err(), "it does not wait for a save that nobody can see")
		require.Empty(t, live(t, f.backend(t)))
	})
}

// A process that may not have the nodes save a floor leaves an empty node to others: its joins would keep them out. It
// notices when an operator gives it the permission.
func TestRefusedSaveIsLeftToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b := f.backend(t)
		f.refuseSaves(forbidden)
		f.nodes[0].restart(t, true)
		advance(virtualTTL / 2)
		require.Less(t, b.NodeStatuses(t.Context())[0].Quarantine, virtualTTL, "it repeats its join")
		advance(2 * virtualTTL)
		require.Equal(t, virtualTTL, b.NodeStatuses(t.Context())[0].Quarantine, "it has stopped that")
		advance(virtualTTL)
		require.Equal(t, []int{1, 2}, live(t, b))
		f.refuseSaves("")
		advance(3 * virtualTTL)
		require.Equal(t, []int{0, 1, 2}, live(t, b))
	})
}

// An append-only file that is being rewritten may lack the floor: it was just enabled, or is not synced meanwhile.
func TestRewrittenFileIsNotSaved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b := f.backend(t)
		for _, n := range f.nodes {
			n.appendOnly(1)
		}
		f.nodes[0].restart(t, true)
		advance(3 * virtualTTL)
		require.Equal(t, []int{1, 2}, live(t, b))
		for _, n := range f.nodes {
			n.appendOnly(0)
		}
		advance(virtualTTL)
		require.Equal(t, []int{0, 1, 2}, live(t, b))
	})
}

// A server that has refused to save several times is asked again.
func TestRefusedSaveIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newVirtualFleet(t, 3).init(t)
		b := f.backend(t)
		f.refuseSaves("ERR Background save already in progress")
		f.nodes[0].restart(t, true)
		advance(3 * virtualTTL)
		require.Equal(t, []int{1, 2}, live(t, b))
		f.refuseSaves("")
		advance(virtualTTL)
		require.Equal(t, []int{0, 1, 2}, live(t, b))
	})
}

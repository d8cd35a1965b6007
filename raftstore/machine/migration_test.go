package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func now(c *SetPolicy) *SetPolicy {
	c.Now = true
	return c
}

func TestPolicies(t *testing.T) {
	run(t, []scenario{
		{"a given version must be the current one", []step{
			{mode("x", engine.Correctness, 7), "outdated v1", ""},
			{mode("x", engine.Correctness, 1), "done v2", ""},
			{mode("x", engine.Correctness, 1), "outdated v2", ""},
			{mode("x", engine.Correctness, 0), "done v3", ""},
			{&DeletePolicy{Prefix: "x", Version: 2}, "outdated v3", ""},
			{&DeletePolicy{Prefix: "x", Version: 3}, "done v4", ""},
			{&DeletePolicy{Prefix: "x"}, "not held v4", ""},
		}},
		{"the mode belongs to the lock", []step{
			{expect(engine.Efficiency, write(ann, 1, "a")), "wrong mode a is correctness", ""},
			{expect(engine.Efficiency, write(ann, 1, "a")), "ended", ""},
			{expect(engine.Correctness, write(ann, 2, "a")), "granted #1", "ann/2 granted a #1"},
			{mode("xx", engine.Correctness, 0), "done v2", ""}, // the longest prefix decides
			{mode("x", engine.Efficiency, 0), "done v3", ""},
			{&FinishMigration{Prefix: "x", Version: 3}, "done v4", ""},
			{expect(engine.Correctness, write(ann, 3, "x1")), "wrong mode x1 is efficiency", ""},
			{expect(engine.Efficiency, write(ann, 4, "x1")), "wrong mode x1 is efficiency", ""},
			{write(ann, 5, "b", "x2"), "wrong mode x2 is efficiency", ""},
			{expect(engine.Correctness, write(ann, 6, "xx")), "granted #2", "ann/6 granted xx #2"},
		}},
		{"a policy with the same mode takes effect at once, even with a holder", []step{
			{write(ann, 1, "a1"), "granted #1", "ann/1 granted a1 #1"},
			{write(bob, 1, "a1"), "queued", "bob/1 queued a1"},
			{mode("", engine.Correctness, 0), "done v2", ""},
			{mode("a", engine.Correctness, 0), "done v3", ""},
			{&DeletePolicy{Prefix: ""}, "done v4", ""},
			{&DeletePolicy{Prefix: "a"}, "done v5", ""},
			{free(ann, 1), "done", "ann/1 released a1 #1, bob/1 granted a1 #2"},
		}},
	})
}

func TestMigrationsToEfficiency(t *testing.T) {
	run(t, []scenario{
		{"waiters are cancelled, holders drain", []step{
			{write(ann, 1, "a1"), "granted #1", "ann/1 granted a1 #1"},
			{write(bob, 1, "a1"), "queued", "bob/1 queued a1"},
			{write(bob, 2, "b"), "granted #2", "bob/2 granted b #2"},
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "bob/1 cancelled a1"},
			{write(bob, 1, "a1"), "migrating correctness to efficiency", ""},
			{try(write(eve, 1, "a2", "c")), "migrating correctness to efficiency", ""},
			{expect(engine.Efficiency, write(eve, 2, "a2")), "migrating correctness to efficiency", ""},
			{write(eve, 3, "c"), "granted #3", "eve/3 granted c #3"}, // other locks are not affected
			{&FinishMigration{Prefix: "a", Version: 2}, "busy a1 v2", ""},
			{&FinishMigration{Prefix: "a", Version: 1}, "outdated v2", ""},
			{&FinishMigration{Prefix: "b", Version: 3}, "outdated v2", ""},
			{free(ann, 1), "done", "ann/1 released a1 #1"},
			{&FinishMigration{Prefix: "a", Version: 2}, "done v3", ""},
			{&FinishMigration{Prefix: "a", Version: 2}, "done v3", ""},
			{write(bob, 1, "a1"), "wrong mode a1 is efficiency", ""},
		}},
		{"a cancelled waiter may repeat its attempt", []step{
			{write(ann, 1, "a1"), "granted #1", "ann/1 granted a1 #1"},
			{write(bob, 1, "a1"), "queued", "bob/1 queued a1"},
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "bob/1 cancelled a1"},
			{&AbortMigration{Prefix: "a"}, "done v3", ""},
			{write(bob, 1, "a1"), "queued", "bob/1 queued a1"},
			{free(ann, 1), "done", "ann/1 released a1 #1, bob/1 granted a1 #2"},
		}},
		{"now breaks holders without a lock-delay", []step{
			{write(ann, 1, "slow1"), "granted #1", "ann/1 granted slow1 #1"},
			{write(bob, 1, "slow2"), "granted #2", "bob/1 granted slow2 #2"},
			{&Break{Resource: "slow2", Token: 2}, "done", "bob/1 broken slow2 #2, slow2 delayed 6"},
			{mode("slow", engine.Efficiency, 0), "done v2", ""},
			{&FinishMigration{Prefix: "slow", Version: 2}, "busy slow1 v2", ""},
			{now(mode("slow", engine.Efficiency, 0)), "done v3", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "ann/1 broken slow1 #1, slow2 opened"},
			{now(mode("slow", engine.Efficiency, 0)), "done v3", ""},
			{write(ann, 1, "slow1"), "ended", ""},
			{&FinishMigration{Prefix: "slow", Version: 2}, "done v4", ""},
		}},
		{"now breaks holders in pieces", []step{
			{write(ann, 1, "a1"), "granted #1", "ann/1 granted a1 #1"},
			{read(bob, 1, "a2"), "granted #2", "bob/1 granted a2 #2"},
			{read(eve, 1, "a2"), "granted #3", "eve/1 granted a2 #3"},
			{write(ann, 2, "a3", "b"), "granted #4", "ann/2 granted a3+b #4"},
			{write(ann, 3, "c"), "granted #5", "ann/3 granted c #5"},
			{&CloseSession{Session: bob}, "done", ""},
			{now(mode("a", engine.Efficiency, 0)), "done v2", ""},
			{&EndRequests{Max: 2}, "ending", "bob/1 released a2 #2, ann/1 broken a1 #1"}, // sessions come first
			{write(eve, 2, "a1"), "migrating correctness to efficiency", ""},
			{&FinishMigration{Prefix: "a", Version: 2}, "busy a2 v2", ""},
			{&EndRequests{Max: 2}, "ending", "eve/1 broken a2 #3"},
			{&EndRequests{Max: 1}, "done", "ann/2 broken a3+b #4"}, // one request may be for more
			{&FinishMigration{Prefix: "a", Version: 2}, "done v3", ""},
		}},
		{"an abort keeps the holders that were not broken yet", []step{
			{write(ann, 1, "a1"), "granted #1", "ann/1 granted a1 #1"},
			{write(ann, 2, "a2"), "granted #2", "ann/2 granted a2 #2"},
			{now(mode("a", engine.Efficiency, 0)), "done v2", ""},
			{&EndRequests{Max: 1}, "ending", "ann/1 broken a1 #1"},
			{&AbortMigration{Prefix: "a"}, "done v3", ""},
			{&EndRequests{Max: 1}, "done", ""},
			{free(ann, 2), "done", "ann/2 released a2 #2"},
		}},
		{"a lock delay blocks the migration of its lock", []step{
			{write(ann, 1, "slow1"), "granted #1", "ann/1 granted slow1 #1"},
			{mode("slow", engine.Efficiency, 0), "done v2", ""},
			{&Expire{Session: ann, Generation: 1}, "done", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "ann/1 expired slow1 #1, slow1 delayed 5"},
			{&FinishMigration{Prefix: "slow", Version: 2}, "busy slow1 v2", ""},
			{&EndDelay{Resource: "slow1", Delay: 5, Generation: 1}, "done", "slow1 opened"},
			{&FinishMigration{Prefix: "slow", Version: 2}, "done v3", ""},
		}},
		{"a set leaves the queue of its other locks too", []step{
			{write(ann, 1, "a1"), "granted #1", "ann/1 granted a1 #1"},
			{read(eve, 1, "b"), "granted #2", "eve/1 granted b #2"},
			{write(bob, 1, "a1", "b"), "queued", "bob/1 queued a1+b"},
			{read(eve, 2, "b"), "queued", "eve/2 queued b"},
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "bob/1 cancelled a1+b, eve/2 granted b #3"},
		}},
		{"a broken set frees its other locks too", []step{
			{write(ann, 1, "a1", "b"), "granted #1", "ann/1 granted a1+b #1"},
			{write(bob, 1, "b"), "queued", "bob/1 queued b"},
			{now(mode("a", engine.Efficiency, 0)), "done v2", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "ann/1 broken a1+b #1, bob/1 granted b #2"},
		}},
		{"only the locks with this longest prefix migrate", []step{
			{mode("a/1", engine.Correctness, 0), "done v2", ""},
			{write(ann, 1, "a/1/x"), "granted #1", "ann/1 granted a/1/x #1"},
			{write(ann, 2, "a/2"), "granted #2", "ann/2 granted a/2 #2"},
			{now(mode("a", engine.Efficiency, 0)), "done v3", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "ann/2 broken a/2 #2"},
			{write(bob, 1, "a/1/x"), "queued", "bob/1 queued a/1/x"},
			{&FinishMigration{Prefix: "a", Version: 3}, "done v4", ""},
			{&DeletePolicy{Prefix: "a/1"}, "done v5", ""}, // now they migrate too
			{&EndRequests{Max: MaxEndRequests}, "done", "bob/1 cancelled a/1/x"},
			{&FinishMigration{Prefix: "a/1", Version: 5}, "busy a/1/x v5", ""},
			{free(ann, 1), "done", "ann/1 released a/1/x #1"},
			{&FinishMigration{Prefix: "a/1", Version: 5}, "done v6", ""},
			{&DeletePolicy{Prefix: "a/1"}, "not held v6", ""},
			{write(bob, 1, "a/1/x"), "wrong mode a/1/x is efficiency", ""},
		}},
	})
}

// Tokens of a lock grow across both modes: the Redis nodes accept only tokens above those that
// the machine granted before, and the machine later grants tokens above those.
func TestMigrationsKeepTokensGrowing(t *testing.T) {
	run(t, []scenario{
		{"there and back", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{now(mode("a", engine.Efficiency, 0)), "done v2", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "ann/1 broken a #1"},
			{&FinishMigration{Prefix: "a", Version: 2}, "done v3", ""},
			{mode("a", engine.Correctness, 0), "done v4", ""},
			{write(ann, 2, "a"), "migrating efficiency to correctness", ""},
			{write(ann, 3, "b"), "granted #2", "ann/3 granted b #2"},
			{&FinishMigration{Prefix: "a", Version: 4}, "done v5", ""},
			{write(ann, 2, "a"), "granted #4294967298", "ann/2 granted a #4294967298"},
		}},
		{"a life that was named meanwhile", []step{
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{&FinishMigration{Prefix: "a", Version: 2}, "done v3", ""},
			{&SetFleet{Fleet: fleetOf("r1:1")}, "done v4", ""},
			{&Reconcile{}, "done v5", ""},
			{&FinishReconcile{Version: 5}, "done v6", ""},
			{mode("a", engine.Correctness, 0), "done v7", ""},
			{assign("r1:1", "life"), "done v8", ""},
			{&FinishMigration{Prefix: "a", Version: 7}, "done v9", ""},
			{write(ann, 1, "a"), "granted #4294967297", "ann/1 granted a #4294967297"},
		}},
		{"the nodes report how far tokens have come", []step{
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{&FinishMigration{Prefix: "a", Version: 2}, "done v3", ""},
			{mode("a", engine.Correctness, 0), "done v4", ""},
			{&FinishMigration{Prefix: "a", Version: 4, Granted: 9}, "done v5", ""},
			{write(ann, 1, "a"), "granted #10", "ann/1 granted a #10"},
			{mode("a", engine.Efficiency, 0), "done v6", ""}, // Redis continues above 10, with the same ceiling
		}},
		{"no tokens left for the other mode", []step{
			{&RaiseFloor{By: fencing.MaxToken - 1<<32 + 1}, "done #9007194959773696", ""},
			{mode("a", engine.Efficiency, 0), "exhausted v1", ""},
			{write(ann, 1, "a"), "granted #9007194959773697", "ann/1 granted a #9007194959773697"},
		}},
		{"not while the log may have forgotten its ceiling", []step{
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{&FinishMigration{Prefix: "a", Version: 2}, "done v3", ""},
			{&SetFleet{Fleet: fleetOf("r1:1")}, "done v4", ""},
			{mode("a", engine.Correctness, 0), "done v5", ""},
			{&FinishMigration{Prefix: "a", Version: 5}, "not ready v5", ""},
			{&Reconcile{Ceiling: 7 << 32}, "done v6", ""},
			{&FinishMigration{Prefix: "a", Version: 5}, "not ready v6", ""},
			{&FinishReconcile{Version: 6}, "done v7", ""},
			{&FinishMigration{Prefix: "a", Version: 5}, "done v8", ""},
			{write(ann, 1, "a"), "granted #47244640257", "ann/1 granted a #47244640257"}, // above 11 << 32
		}},
	})
	m := played(t, &RaiseFloor{By: 10}, mode("a", engine.Efficiency, 0))
	require.Equal(t, Efficiency{Version: 1, Floor: 10, Ceiling: 10 + 1<<32, Fresh: true, Migrations: []Migration{
		{Prefix: "a", From: engine.Correctness, To: engine.Efficiency, Version: 1}}}, m.Efficiency())
}

func TestMigrationsUnderChangingPolicies(t *testing.T) {
	run(t, []scenario{
		{"repeated, it is the same migration", []step{
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{mode("a", engine.Correctness, 0), "migrating correctness to efficiency v2", ""},
			{&DeletePolicy{Prefix: "a"}, "migrating correctness to efficiency v2", ""},
			{&SetPolicy{Policy: engine.Policy{Prefix: "a", Mode: engine.Efficiency, TTL: time.Hour}}, "done v3", ""},
			{&FinishMigration{Prefix: "a", Version: 2}, "done v4", ""},
		}},
		{"a deletion in progress", []step{
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{&FinishMigration{Prefix: "a", Version: 2}, "done v3", ""},
			{&DeletePolicy{Prefix: "a"}, "done v4", ""},
			{&DeletePolicy{Prefix: "a"}, "done v4", ""},
			{&DeletePolicy{Prefix: "a", Now: true}, "done v5", ""},
			{mode("a", engine.Efficiency, 0), "migrating efficiency to correctness v5", ""},
			{mode("a", engine.Correctness, 0), "done v6", ""}, // keep the policy after all
			{&FinishMigration{Prefix: "a", Version: 4}, "done v7", ""},
			{&DeletePolicy{Prefix: "a"}, "done v8", ""},
		}},
		{"no lock joins a migration that started without it", []step{
			{mode("a/1", engine.Correctness, 0), "done v2", ""},
			{mode("a", engine.Efficiency, 0), "done v3", ""},
			{&DeletePolicy{Prefix: "a/1"}, "migrating correctness to efficiency v3", ""},
			{mode("a/2", engine.Correctness, 0), "done v4", ""}, // but a lock may leave one
			{write(ann, 1, "a/2"), "granted #1", "ann/1 granted a/2 #1"},
			{mode("a/3", engine.Efficiency, 0), "done v5", ""},
			{write(ann, 2, "a/3"), "migrating correctness to efficiency", ""},
			{&FinishMigration{Prefix: "a", Version: 3}, "done v6", ""},
			{write(ann, 2, "a/3"), "migrating correctness to efficiency", ""},
		}},
		{"an aborted migration keeps the old mode, whatever happened to the parent policy", []step{
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{&FinishMigration{Prefix: "a", Version: 2}, "done v3", ""},
			{mode("a/1", engine.Correctness, 0), "done v4", ""},
			{mode("a", engine.Correctness, 0), "done v5", ""},
			{&FinishMigration{Prefix: "a", Version: 5}, "done v6", ""},
			{&AbortMigration{Prefix: "a/1"}, "done v7", ""},
			{write(ann, 1, "a/1"), "wrong mode a/1 is efficiency", ""},
			{&AbortMigration{Prefix: "a/1"}, "not held v7", ""},
		}},
		{"a deletion ends in its target mode, whatever happened to the parent policy", []step{
			{mode("a/1", engine.Efficiency, 0), "done v2", ""},
			{&FinishMigration{Prefix: "a/1", Version: 2}, "done v3", ""},
			{&DeletePolicy{Prefix: "a/1"}, "done v4", ""},
			{mode("a", engine.Efficiency, 0), "done v5", ""},
			{&FinishMigration{Prefix: "a", Version: 5}, "done v6", ""},
			{&FinishMigration{Prefix: "a/1", Version: 4}, "done v7", ""},
			{write(ann, 1, "a/1"), "granted #4294967297", "ann/1 granted a/1 #4294967297"},
		}},
		{"a deletion that ends while the parent policy migrates keeps its locks out of it", []step{
			{mode("a/1", engine.Efficiency, 0), "done v2", ""},
			{&FinishMigration{Prefix: "a/1", Version: 2}, "done v3", ""},
			{&DeletePolicy{Prefix: "a/1"}, "done v4", ""},
			{mode("a", engine.Efficiency, 0), "done v5", ""},
			{&FinishMigration{Prefix: "a/1", Version: 4}, "done v6", ""},
			{write(ann, 1, "a/1"), "granted #4294967297", "ann/1 granted a/1 #4294967297"},
			{&FinishMigration{Prefix: "a", Version: 5}, "done v7", ""}, // the holder does not delay it
			{write(ann, 2, "a/1/x"), "granted #4294967298", "ann/2 granted a/1/x #4294967298"},
		}},
		{"an aborted migration of a new prefix stays out of that of its parent policy", []step{
			{mode("a/1", engine.Efficiency, 0), "done v2", ""},
			{mode("a", engine.Efficiency, 0), "done v3", ""},
			{&AbortMigration{Prefix: "a/1"}, "done v4", ""},
			{write(ann, 1, "a/1"), "granted #1", "ann/1 granted a/1 #1"},
			{&FinishMigration{Prefix: "a", Version: 3}, "done v5", ""},
			{write(ann, 2, "a/1/x"), "granted #2", "ann/2 granted a/1/x #2"},
		}},
		{"an aborted migration of a new prefix leaves no policy", []step{
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{&AbortMigration{Prefix: "a"}, "done v3", ""},
			{&FinishMigration{Prefix: "a", Version: 2}, "done v3", ""}, // too late, no effect
			{&DeletePolicy{Prefix: "a"}, "not held v3", ""},
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
		}},
	})
}

// Migrations shows a migration, and an abort restores the old policy.
func TestMigrationIsListed(t *testing.T) {
	before := engine.Policy{Prefix: "a", Mode: engine.Correctness, TTL: time.Hour, LockDelay: time.Minute}
	target := engine.Policy{Prefix: "a", Mode: engine.Efficiency, TTL: time.Minute}
	m := played(t, &Lead{}, &OpenSession{Session: ann, TTL: time.Second}, &SetPolicy{Policy: before},
		as(1, write(ann, 1, "a1", "b")), as(1, write(ann, 2, "a2")), as(1, write(ann, 3, "b2")), &SetPolicy{Policy: target})
	require.Equal(t, []Migration{{Prefix: "a", From: engine.Correctness, To: engine.Efficiency, Version: 2, Holders: 2}},
		m.Migrations())
	require.Equal(t, engine.Policy{Prefix: "a", Mode: engine.Correctness, Next: engine.Efficiency, TTL: time.Minute},
		m.Topology().Policies.All()[0])
	_, err := m.Topology().ModeOf("a7")
	require.Equal(t, &engine.MigratingError{Resource: "a7", From: engine.Correctness, To: engine.Efficiency}, err)
	other, err := Restore(m.Snapshot())
	require.NoError(t, err)

	m.Apply(&AbortMigration{Prefix: "a"})
	require.Empty(t, m.Migrations())
	require.Equal(t, []engine.Policy{before}, m.Topology().Policies.All())

	other.Apply(&SetPolicy{Policy: target, Now: true})
	other.Apply(&EndRequests{Max: MaxEndRequests})
	require.Equal(t, []Migration{{Prefix: "a", From: engine.Correctness, To: engine.Efficiency, Version: 2, Now: true}},
		other.Migrations())
	other.Apply(&FinishMigration{Prefix: "a", Version: 2})
	require.Equal(t, []engine.Policy{target}, other.Topology().Policies.All())
	other.Apply(&DeletePolicy{Prefix: "a"})
	require.Equal(t, []Migration{{Prefix: "a", From: engine.Efficiency, To: engine.Correctness, Version: 5, Delete: true}},
		other.Migrations())
	require.Equal(t, Migrating, other.Routable([]fencing.Resource{"b", "a1"}).Code)
	require.Equal(t, Done, other.Routable([]fencing.Resource{"b"}).Code)
}

// A migration of many locks that does not wait ends their leases in several entries. A replica
// that is restored in between continues where the others are.
func TestMigrationOfManyLocksEndsInPieces(t *testing.T) {
	const leases = 3*MaxEndRequests + 1
	m := opened(ann)
	for i := range leases {
		m.Apply(as(1, write(ann, engine.Nonce(i+1), fencing.Resource(fmt.Sprintf("a/%04d", i)))))
	}
	_, events := m.Apply(now(mode("a/", engine.Efficiency, 0)))
	require.Empty(t, events)
	broken := 0
	for more := true; more; {
		require.True(t, m.HasEnding())
		restored, err := Restore(m.Snapshot())
		require.NoError(t, err)
		require.True(t, restored.HasEnding())
		result, events := m.Apply(&EndRequests{Max: MaxEndRequests})
		require.LessOrEqual(t, len(events), MaxEndRequests)
		broken += len(events)
		same, _ := restored.Apply(&EndRequests{Max: MaxEndRequests})
		require.Equal(t, result, same)
		require.Equal(t, m.Snapshot(), restored.Snapshot())
		more = result.Code == Ending
	}
	require.Equal(t, leases, broken)
	require.False(t, m.HasEnding())
	require.Zero(t, m.Count().Holders)
}

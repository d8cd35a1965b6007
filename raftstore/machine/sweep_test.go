package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func TestSweeps(t *testing.T) {
	end := &EndRequests{Max: 1}
	withWaiters := func(steps ...step) []step {
		return append([]step{
			{write(ann, 1, "a1"), "granted #1", "ann/1 granted a1 #1"},
			{write(ann, 2, "a2"), "granted #2", "ann/2 granted a2 #2"},
			{write(bob, 1, "a1"), "queued", "bob/1 queued a1"},
			{write(bob, 2, "a2"), "queued", "bob/2 queued a2"},
			{mode("a", engine.Efficiency, 0), "done v2", ""},
		}, steps...)
	}
	run(t, []scenario{
		{"a waiter is not granted before it is cancelled", withWaiters(
			step{free(ann, 1), "done", "ann/1 released a1 #1"},
			step{free(ann, 2), "done", "ann/2 released a2 #2"},
			step{&FinishMigration{Prefix: "a", Version: 2}, "busy a1 v2", ""}, // it has a waiter
			step{end, "ending", "bob/1 cancelled a1"},
			step{&FinishMigration{Prefix: "a", Version: 2}, "busy a2 v2", ""},
			step{end, "done", "bob/2 cancelled a2"},
			step{&FinishMigration{Prefix: "a", Version: 2}, "done v3", ""},
		)},
		{"a set with a lock in a migration is not granted", []step{
			{write(ann, 1, "b"), "granted #1", "ann/1 granted b #1"},
			{write(bob, 1, "a", "b"), "queued", "bob/1 queued a+b"},
			{write(eve, 1, "b"), "queued", "eve/1 queued b"},
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{free(ann, 1), "done", "ann/1 released b #1"},
			{end, "done", "bob/1 cancelled a+b, eve/1 granted b #2"},
		}},
		{"a waiter that no sweep has reached is granted after an abort", withWaiters(
			step{end, "ending", "bob/1 cancelled a1"},
			step{free(ann, 2), "done", "ann/2 released a2 #2"},
			step{&AbortMigration{Prefix: "a"}, "done v3", ""},
			step{try(write(eve, 1, "a2")), "held", ""}, // bob is first
			step{end, "done", "bob/2 granted a2 #3"},
		)},
		{"a waiter whose lock leaves the migration is granted", []step{
			{write(ann, 1, "a1"), "granted #1", "ann/1 granted a1 #1"},
			{write(bob, 1, "a1"), "queued", "bob/1 queued a1"},
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{free(ann, 1), "done", "ann/1 released a1 #1"},
			{mode("a1", engine.Correctness, 0), "done v3", ""},
			{end, "done", "bob/1 granted a1 #2"},
		}},
		{"a migration that begins again sweeps from the beginning", withWaiters(
			step{end, "ending", "bob/1 cancelled a1"},
			step{&AbortMigration{Prefix: "a"}, "done v3", ""},
			step{write(bob, 1, "a1"), "queued", "bob/1 queued a1"},
			step{mode("a", engine.Efficiency, 0), "done v4", ""},
			step{end, "ending", "bob/1 cancelled a1"},
			step{end, "done", "bob/2 cancelled a2"},
		)},
		{"now, after the sweep that has cancelled the waiters", []step{
			{write(ann, 1, "a1"), "granted #1", "ann/1 granted a1 #1"},
			{write(bob, 1, "a1"), "queued", "bob/1 queued a1"},
			{mode("a", engine.Efficiency, 0), "done v2", ""},
			{end, "done", "bob/1 cancelled a1"},
			{now(mode("a", engine.Efficiency, 0)), "done v3", ""},
			{end, "done", "ann/1 broken a1 #1"},
		}},
		{"one lock with many waiters", []step{
			{write(ann, 1, "a1"), "granted #1", "ann/1 granted a1 #1"},
			{read(bob, 1, "a1"), "queued", "bob/1 queued a1"},
			{read(eve, 1, "a1"), "queued", "eve/1 queued a1"},
			{read(bob, 2, "a1"), "queued", "bob/2 queued a1"},
			{now(mode("a", engine.Efficiency, 0)), "done v2", ""},
			{&EndRequests{Max: 2}, "ending", "bob/1 cancelled a1, eve/1 cancelled a1"},
			{&EndRequests{Max: 2}, "done", "bob/2 cancelled a1, ann/1 broken a1 #1"},
		}},
	})
}

// manyLocks is more than a command may visit.
const manyLocks = 3*visitsPerEnd*MaxEndRequests + 700

// holding returns a machine where ann holds manyLocks locks, of which bob waits for some.
func holding(t *testing.T, waits ...int) *Machine {
	t.Helper()
	m := opened(ann)
	m.Apply(&OpenSession{Session: bob, TTL: time.Second})
	for i := range manyLocks {
		m.Apply(as(1, write(ann, engine.Nonce(i+1), lockNumber(i))))
	}
	bobs := m.SessionInfo(bob).Incarnation
	for n, i := range waits {
		require.Equal(t, Queued, apply(m, as(bobs, write(bob, engine.Nonce(n+1), lockNumber(i)))).Code)
	}
	return m
}

func lockNumber(i int) fencing.Resource { return fencing.Resource(fmt.Sprintf("many/%06d", i)) }

// A migration of many locks that waits for their holders searches for waiters in several
// entries. A replica that is restored in between continues where the others are.
func TestMigrationOfManyLocksCancelsWaitersInPieces(t *testing.T) {
	m := holding(t, 0, manyLocks/2, manyLocks-1)
	_, events := m.Apply(mode("many/", engine.Efficiency, 0))
	require.Empty(t, events)
	entries, cancelled := 0, 0
	for more := true; more; entries++ {
		require.True(t, m.HasEnding())
		restored, err := Restore(m.Snapshot())
		require.NoError(t, err)
		result, events := m.Apply(&EndRequests{Max: MaxEndRequests})
		cancelled += len(events)
		same, sameEvents := restored.Apply(&EndRequests{Max: MaxEndRequests})
		require.Equal(t, result, same)
		require.ElementsMatch(t, events, sameEvents)
		require.Equal(t, m.Snapshot(), restored.Snapshot())
		more = result.Code == Ending
	}
	require.Equal(t, 4, entries)
	require.Equal(t, 3, cancelled)
	require.Zero(t, m.Count().Waiters)
	require.NoError(t, m.check())
}

// No command, and no read that the service repeats, looks at all locks of a migration, or at all locks
// in its way that have another policy.
func TestMigrationOfManyLocksIsReadInPieces(t *testing.T) {
	const most = visitsPerEnd*MaxEndRequests + 2*maxBlock
	for name, prefix := range map[string]string{"of the migration": "many/", "of a longer prefix": "m"} {
		t.Run(name, func(t *testing.T) {
			m := holding(t, manyLocks-1)
			m.Apply(as(1, write(ann, manyLocks+1, "mz")))
			reads := func(what string, do func()) {
				t.Helper()
				before := m.names.read
				do()
				require.LessOrEqual(t, m.names.read-before, most, what)
			}
			applies := func(code Code, c Command) {
				t.Helper()
				reads(fmt.Sprintf("%T", c), func() { require.Equal(t, code, apply(m, c).Code) })
			}
			applies(Done, mode("many/", engine.Correctness, 0))
			applies(Done, mode(prefix, engine.Efficiency, 0))
			applies(Ending, &EndRequests{Max: MaxEndRequests})
			reads("Efficiency", func() { require.Len(t, m.Efficiency().Migrations, 1) })
			require.Contains(t, []int{MaxHolders, 1}, m.Migrations()[0].Holders)
			applies(Busy, &FinishMigration{Prefix: prefix, Version: m.migrations[prefix].version})
			applies(Done, now(mode(prefix, engine.Efficiency, 0)))
			applies(Ending, &EndRequests{Max: MaxEndRequests})
			applies(Done, &AbortMigration{Prefix: prefix})
			applies(Ending, &EndRequests{Max: MaxEndRequests})
			applies(Done, &DeletePolicy{Prefix: "many/"})
			applies(Done, mode(prefix, engine.Efficiency, 0))
			for entries := 0; m.HasEnding(); entries++ {
				reads("EndRequests", func() { m.Apply(&EndRequests{Max: MaxEndRequests}) })
				require.Less(t, entries, 10)
			}
			applies(Busy, &FinishMigration{Prefix: prefix, Version: m.migrations[prefix].version})
			require.NoError(t, m.check())
		})
	}
}

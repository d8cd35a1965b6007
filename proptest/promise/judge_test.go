package promise_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/promise"
)

// tell is an event about the one lock of these stories.
func tell(kind promise.Kind, attempt promise.Attempt, token fencing.Token) promise.Event {
	return promise.Event{Kind: kind, Resource: "r", Attempt: attempt, Token: token}
}

func sent(op uint64) promise.Event {
	return promise.Event{Kind: promise.Sent, Resource: "r", Op: op}
}

func wrote(op uint64, token fencing.Token, seen, version uint64) promise.Event {
	return promise.Event{Kind: promise.Wrote, Resource: "r", Op: op, Token: token, Seen: seen, Version: version}
}

func acknowledged(op uint64) promise.Event {
	return promise.Event{Kind: promise.Acknowledged, Resource: "r", Op: op}
}

func applied(who string, index, hash uint64) promise.Event {
	return promise.Event{Kind: promise.Applied, Who: who, Index: index, Hash: hash}
}

// Each promise is shown broken once; whoever takes a check out sees its story
// pass.
func TestJudgeSeesEachPromiseBroken(t *testing.T) {
	const asked, told, ended = promise.Asked, promise.Told, promise.Ended
	for _, story := range []struct {
		name   string
		breaks promise.Promise
		log    bool
		events []promise.Event
	}{
		{"one token for two", promise.T1, false, []promise.Event{
			tell(asked, "a", 0), tell(asked, "b", 0), tell(told, "a", 1), tell(told, "b", 1)}},
		{"a later attempt has an older token", promise.T2, false, []promise.Event{
			tell(asked, "a", 0), tell(told, "a", 5), tell(ended, "a", 5), tell(asked, "b", 0), tell(told, "b", 4)}},
		{"no token at all", promise.T2, false, []promise.Event{tell(asked, "a", 0), tell(told, "a", 0)}},
		{"tokens go back over a fault", promise.T3, false, []promise.Event{
			tell(asked, "a", 0), tell(told, "a", 5), {Kind: promise.Fault, Note: "emptied"}, tell(asked, "b", 0), tell(told, "b", 1)}},
		{"two tokens for one attempt", promise.Once, false, []promise.Event{
			tell(asked, "a", 0), tell(told, "a", 1), tell(told, "a", 2)}},
		{"a stale write is applied", promise.G1, false, []promise.Event{
			tell(promise.Entered, "", 2), sent(1), wrote(1, 1, 0, 1)}},
		{"a stale entry is admitted", promise.G1, false, []promise.Event{
			tell(promise.Entered, "", 2), tell(promise.Entered, "", 1)}},
		{"a good write is refused", promise.G1, false, []promise.Event{
			tell(promise.Entered, "", 2), sent(1), tell(promise.Stale, "", 2)}},
		{"an update is lost", promise.G2, false, []promise.Event{
			sent(1), sent(2), wrote(1, 1, 0, 1), wrote(2, 2, 0, 2)}},
		{"one write twice", promise.Once, false, []promise.Event{sent(1), wrote(1, 1, 0, 1), wrote(1, 1, 1, 2)}},
		{"refused and yet applied", promise.Once, false, []promise.Event{
			sent(1), wrote(1, 1, 0, 1), {Kind: promise.Rejected, Resource: "r", Op: 1}}},
		{"acknowledged and never applied", promise.Survives, false, []promise.Event{sent(1), acknowledged(1)}},
		{"acknowledged and gone", promise.Survives, false, []promise.Event{
			sent(1), wrote(1, 1, 0, 1), acknowledged(1), {Kind: promise.Found, Resource: "r", Version: 0}}},
		{"two holders in the log", promise.M1, true, []promise.Event{
			tell(asked, "a", 0), tell(asked, "b", 0), tell(promise.Granted, "a", 1), tell(promise.Granted, "b", 2)}},
		{"one attempt twice in the log", promise.Once, true, []promise.Event{
			tell(asked, "a", 0), tell(promise.Granted, "a", 1), tell(promise.Freed, "a", 1), tell(promise.Granted, "a", 2)}},
		{"the log goes back", promise.T2, true, []promise.Event{tell(asked, "a", 0), tell(asked, "b", 0),
			tell(promise.Granted, "a", 3), tell(promise.Freed, "a", 3), tell(promise.Granted, "b", 2)}},
		{"a grant that is in no log", promise.Survives, true, []promise.Event{tell(asked, "a", 0), tell(told, "a", 1)}},
		{"replicas differ", promise.Chain, false, []promise.Event{applied("1", 7, 1), applied("2", 7, 2)}},
	} {
		t.Run(story.name, func(t *testing.T) {
			j := promise.NewJudge("story")
			j.Log = story.log
			for i, e := range story.events {
				err := j.See(e)
				if i < len(story.events)-1 {
					require.NoError(t, err)
					continue
				}
				var v *promise.Violation
				require.True(t, errors.As(err, &v), "nothing was seen")
				require.Equal(t, story.breaks, v.Promise)
			}
			require.Len(t, j.Report(true).Violations, 1)
		})
	}
}

func TestHealingOwesProgress(t *testing.T) {
	j := promise.NewJudge("story")
	require.NoError(t, j.See(promise.Event{Kind: promise.Healed}))
	require.Empty(t, j.Report(false).Violations)
	require.Len(t, j.Report(true).Violations, 1)
	require.NoError(t, j.See(promise.Event{Kind: promise.Healed}))
	require.NoError(t, j.See(promise.Event{Kind: promise.Served}))
	require.Len(t, j.Report(true).Violations, 1, "no further one")
}

// A story with a pause, in which two believe for a while: counted, and no
// promise broken.
func TestJudgeCountsOverlaps(t *testing.T) {
	j := promise.NewJudge("story")
	for _, e := range []promise.Event{
		tell(promise.Asked, "a", 0), tell(promise.Told, "a", 1), tell(promise.Told, "a", 1),
		{Kind: promise.Paused, Who: "a"},
		tell(promise.Asked, "b", 0), tell(promise.Told, "b", 2), tell(promise.Entered, "", 2),
		sent(1), wrote(1, 2, 0, 1), acknowledged(1),
		{Kind: promise.Resumed, Who: "a"}, sent(2), {Kind: promise.Stale, Resource: "r", Op: 2, Token: 1},
		{Kind: promise.Rejected, Resource: "r", Op: 2}, tell(promise.Ended, "a", 1), tell(promise.Ended, "b", 2),
		{Kind: promise.Found, Resource: "r", Version: 1},
	} {
		require.NoError(t, j.See(e))
	}
	r := j.Report(true)
	require.Equal(t, 1, r.Overlaps)
	require.Equal(t, 1, r.Stale)
	require.Equal(t, map[string]int{"paused": 1}, r.Faults)
	require.Equal(t, 6, r.Operations)
}

package proposer_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/proposer"
)

type operation = proposer.Operation[string]

func names(operations []operation) (list []string) {
	for _, op := range operations {
		list = append(list, op.Caller)
	}
	return list
}

func TestOneEntryIsInFlight(t *testing.T) {
	q := proposer.NewQueue[string](10)
	b, refused := q.Next(1)
	require.Nil(t, b)
	require.Empty(t, refused)

	require.True(t, q.Add(operation{Command: &machine.Release{}, Leadership: 1, Caller: "first"}))
	b, _ = q.Next(1)
	require.Equal(t, []string{"first"}, names(b.Operations))
	require.True(t, q.Add(operation{Leadership: 1, Caller: "barrier"}))
	require.True(t, q.Add(operation{Command: &machine.Release{}, Leadership: 1, Caller: "second"}))
	none, _ := q.Next(1)
	require.Nil(t, none, "the first entry is in flight")

	q.Done()
	b, _ = q.Next(1)
	require.Equal(t, []string{"barrier", "second"}, names(b.Operations), "everything that arrived meanwhile")
	require.Len(t, b.Commands, 1)
	got := map[string]machine.Code{}
	b.Answer([]machine.Result{{Code: machine.Held}}, func(caller string, r machine.Result) { got[caller] = r.Code })
	require.Equal(t, map[string]machine.Code{"barrier": machine.Done, "second": machine.Held}, got)
}

// Every caller gets the result of its own command: with another's, two callers
// could hold one token.
func TestResultsGoToTheirCallers(t *testing.T) {
	q := proposer.NewQueue[string](10)
	for _, op := range []operation{{Command: &machine.Acquire{}, Caller: "a"}, {Caller: "barrier"},
		{Command: &machine.Acquire{}, Caller: "b"}} {
		require.True(t, q.Add(op))
	}
	b, _ := q.Next(1)
	tokens := map[string]fencing.Token{}
	b.Answer([]machine.Result{{Code: machine.Granted, Token: 1}, {Code: machine.Granted, Token: 2}},
		func(caller string, r machine.Result) { tokens[caller] = r.Token })
	require.Equal(t, map[string]fencing.Token{"a": 1, "barrier": 0, "b": 2}, tokens)
}

func TestFormerLeadershipIsRefused(t *testing.T) {
	q := proposer.NewQueue[string](10)
	for _, op := range []operation{{Leadership: 1, Caller: "former"}, {Leadership: 2, Caller: "current"},
		{Command: &machine.Lead{}, Caller: "lead"}} {
		require.True(t, q.Add(op))
	}
	b, refused := q.Next(2)
	require.Equal(t, []string{"current", "lead"}, names(b.Operations))
	require.Equal(t, []string{"former"}, names(refused))

	q.Done()
	require.True(t, q.Add(operation{Leadership: 2, Caller: "current"}))
	b, refused = q.Next(0)
	require.Nil(t, b, "no leadership")
	require.Equal(t, []string{"current"}, names(refused))
	require.True(t, q.Add(operation{Caller: "lead"}))
	b, _ = q.Next(0)
	require.Equal(t, []string{"lead"}, names(b.Operations), "a refusal does not count as a flight")
}

func TestQueueIsBounded(t *testing.T) {
	q := proposer.NewQueue[string](2)
	require.True(t, q.Add(operation{}))
	require.True(t, q.Add(operation{}))
	require.False(t, q.Add(operation{}))
	require.Equal(t, 2, q.Len())
}

func TestEntriesAreBounded(t *testing.T) {
	q := proposer.NewQueue[string](3 * proposer.MaxOperations)
	for range proposer.MaxOperations + 1 {
		q.Add(operation{Command: &machine.Release{}})
	}
	b, _ := q.Next(0)
	require.Len(t, b.Operations, proposer.MaxOperations)
	q.Done()
	b, _ = q.Next(0)
	require.Len(t, b.Operations, 1)
	q.Done()

	large := &machine.Acquire{Request: engine.Request{Holder: strings.Repeat("x", proposer.MaxBytes/2)}}
	for range 3 {
		q.Add(operation{Command: large})
	}
	b, _ = q.Next(0)
	require.Len(t, b.Operations, 2)
}

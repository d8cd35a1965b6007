package property_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

func at(ms int, kind property.Kind, who string, token fencing.Token) property.Event {
	return property.Event{At: time.Duration(ms) * time.Millisecond, Kind: kind, Who: who, Resource: "account/7",
		Token: token, Attempt: property.Attempt(who)}
}

func operation(e property.Event, op, seen, version uint64) property.Event {
	e.Op, e.Seen, e.Version, e.Attempt = op, seen, version, ""
	return e
}

// lostUpdate returns a history with a paused holder and no gate, and its violation.
func lostUpdate(t *testing.T) ([]property.Event, *property.Violation) {
	t.Helper()
	events := []property.Event{
		at(0, property.Requested, "alice", 0), at(3, property.Acquired, "alice", 33),
		{At: 9 * time.Millisecond, Kind: property.Paused, Who: "alice", Note: "SIGSTOP"},
		at(11, property.Requested, "bob", 0),
		{At: 900 * time.Millisecond, Kind: property.Fault, Who: "node <1>", Note: "</script> & restarted"},
		at(2011, property.Acquired, "bob", 34),
		operation(at(2015, property.Sent, "bob", 34), 1, 0, 0), operation(at(2016, property.Wrote, "", 34), 1, 0, 1),
		operation(at(2017, property.Acknowledged, "bob", 34), 1, 0, 0), at(2018, property.Ended, "bob", 34),
		{At: 2500 * time.Millisecond, Kind: property.Resumed, Who: "alice"},
		operation(at(2501, property.Sent, "alice", 33), 2, 0, 0), operation(at(2502, property.Wrote, "", 33), 2, 0, 1),
		operation(at(2503, property.Acknowledged, "alice", 33), 2, 0, 0), at(2504, property.Ended, "alice", 33),
		{At: 2600 * time.Millisecond, Kind: property.Healed},
	}
	checker := property.NewChecker("test")
	var first *property.Violation
	for _, e := range events {
		var v *property.Violation
		if errors.As(checker.Observe(e), &v) && first == nil {
			first = v
		}
	}
	require.NotNil(t, first)
	return events, first
}

// box is a box on a page.
type box struct {
	Tag, Description, BackgroundColor string
	Start, End                        int64
}

// boxes draws a history and returns its boxes by lane and description.
func boxes(t *testing.T, events []property.Event, bad ...*property.Violation) map[string]box {
	t.Helper()
	var page bytes.Buffer
	require.NoError(t, property.Draw(&page, events, bad...))
	_, text, found := strings.Cut(page.String(), "const data = ")
	require.True(t, found)
	require.NotContains(t, text, "<1>", "text is escaped")
	var data struct{ Annotations []box }
	require.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(&data))
	all := map[string]box{}
	for _, b := range data.Annotations {
		b.Start, b.End = b.Start/100, b.End/100 // porcupine scales times
		all[b.Tag+": "+b.Description] = b
	}
	return all
}

func TestLostUpdateIsRed(t *testing.T) {
	events, bad := lostUpdate(t)
	found := boxes(t, events, bad)
	for name, want := range map[string][2]int64{
		"alice: acquire":                                {0, 1},
		"alice: lease, token 33":                        {1, 14},
		"alice, faults: SIGSTOP":                        {2, 10},
		"bob: acquire":                                  {3, 5},
		"bob: lease, token 34":                          {5, 9},
		"node <1>, faults: </script> & restarted":       {4, 4},
		"bob at the gate: write, token 34":              {6, 8},
		"storage: version 0 -> 1, token 34":             {7, 7},
		"alice at the gate: write, token 33":            {11, 13},
		"storage: version 0 -> 1, token 33":             {12, 12},
		"all: healed":                                   {15, 15},
		"violations: Violated: " + string(bad.Property): {12, 12},
	} {
		b, ok := found[name]
		require.True(t, ok, "%s: %v", name, found)
		require.Equal(t, want, [2]int64{b.Start, b.End}, name)
		delete(found, name)
		bad := name == "storage: version 0 -> 1, token 33" || b.Tag == "violations"
		require.Equal(t, bad, b.BackgroundColor == "#f4a3a3", name)
	}
	require.Empty(t, found)
}

// A refused write is marked, and one without an answer lasts until the end.
func TestWritesWithoutSuccess(t *testing.T) {
	found := boxes(t, []property.Event{
		operation(at(1, property.Sent, "alice", 33), 1, 0, 0), operation(at(2, property.Stale, "", 33), 1, 0, 0),
		operation(at(3, property.Rejected, "alice", 33), 1, 0, 0), operation(at(4, property.Sent, "bob", 34), 2, 0, 0),
	})
	require.NotEmpty(t, found["alice at the gate: write, token 33 refused"].BackgroundColor)
	require.NotEmpty(t, found["storage: stale, token 33"].BackgroundColor)
	require.EqualValues(t, 4, found["bob at the gate: write, token 34 …"].End)
}

// Every kind of event can be drawn, also without the event that it belongs to.
func TestEveryKind(t *testing.T) {
	var events []property.Event
	for k := property.Requested; k <= property.Restored; k++ {
		e := property.Event{At: time.Duration(k), Kind: k, Who: "x", Resource: "r", Token: 1, Op: uint64(k)}
		e.Attempt = property.Attempt(k.String())
		events = append(events, e, property.Event{Kind: k})
	}
	require.NotEmpty(t, boxes(t, events, &property.Violation{Event: events[0]}))
	require.Empty(t, boxes(t, nil))
}

func TestExcerpt(t *testing.T) {
	events, bad := lostUpdate(t)
	other := at(2501, property.Requested, "carol", 0)
	other.Resource = "else"
	events = append(events[:9], append([]property.Event{other, {Kind: property.Paused, Who: "carol"}}, events[9:]...)...)
	part := property.Excerpt(events, bad.Event, 4)
	require.Contains(t, part, bad.Event)
	require.NotContains(t, part, other)
	require.Equal(t, property.Acquired, part[0].Kind, "the grant of the lease that it was written under")
	require.Equal(t, "alice", part[0].Who)
	require.Equal(t, property.Paused, part[1].Kind, "and why the write was late")
	require.Equal(t, property.Healed, part[len(part)-1].Kind)
	for _, e := range part {
		require.NotEqual(t, "carol", e.Who)
	}
}

// Operations are complete up to the call of the first one that is left out.
func TestFirst(t *testing.T) {
	var events []property.Event
	add := func(ms int, kind property.Kind, who string, op uint64, access property.Access, version uint64) {
		e := operation(at(ms, kind, who, 1), op, 0, version)
		e.Access = access
		events = append(events, e)
	}
	add(1, property.Sent, "a", 1, property.Write, 7)
	add(2, property.Sent, "b", 2, property.Read, 0)
	add(3, property.Acknowledged, "b", 2, property.Read, 7)
	add(4, property.Sent, "b", 3, property.Enter, 0)
	add(5, property.Rejected, "b", 3, property.Enter, 0)
	add(6, property.Acknowledged, "a", 1, property.Write, 7)
	ops := property.Operations(events)
	require.Len(t, ops, 3)
	require.Equal(t, property.Acknowledged, ops[0].Answer)
	require.Equal(t, property.Acknowledged, ops[1].Answer)
	require.Equal(t, property.Rejected, ops[2].Answer)
	require.EqualValues(t, 7, ops[1].Value)
	require.Equal(t, ops, property.First(ops, 3))
	first := property.First(ops, 2)
	require.Len(t, first, 2)
	require.Equal(t, unknown, first[0].Answer)
	require.Equal(t, property.Acknowledged, first[1].Answer)
}

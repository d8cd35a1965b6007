package property_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// event is an event of the only lock in these histories.
func event(kind property.Kind, attempt property.Attempt, token fencing.Token) property.Event {
	return property.Event{Kind: kind, Resource: "r", Attempt: attempt, Token: token}
}

func sent(op uint64) property.Event {
	return property.Event{Kind: property.Sent, Resource: "r", Op: op}
}

func wrote(op uint64, token fencing.Token, seen, version uint64) property.Event {
	return property.Event{Kind: property.Wrote, Resource: "r", Op: op, Token: token, Seen: seen, Version: version}
}

func acknowledged(op uint64) property.Event {
	return property.Event{Kind: property.Acknowledged, Resource: "r", Op: op}
}

func applied(who string, index, hash uint64) property.Event {
	return property.Event{Kind: property.Applied, Who: who, Index: index, Hash: hash}
}

// Every property is violated by one history, so that removing its check fails here.
func TestCheckerReportsEachViolation(t *testing.T) {
	const requested, acquired, ended = property.Requested, property.Acquired, property.Ended
	for _, history := range []struct {
		name     string
		violates property.Name
		log      bool
		events   []property.Event
	}{
		{"one token for two attempts", property.T1, false, []property.Event{
			event(requested, "a", 0), event(requested, "b", 0), event(acquired, "a", 1), event(acquired, "b", 1)}},
		{"a later attempt has an older token", property.T2, false, []property.Event{
			event(requested, "a", 0), event(acquired, "a", 5), event(ended, "a", 5), event(requested, "b", 0),
			event(acquired, "b", 4)}},
		{"no token at all", property.T2, false, []property.Event{event(requested, "a", 0), event(acquired, "a", 0)}},
		{"a smaller token after a fault", property.T3, false, []property.Event{
			event(requested, "a", 0), event(acquired, "a", 5), {Kind: property.Fault, Note: "emptied"}, event(requested, "b", 0),
			event(acquired, "b", 1)}},
		{"two tokens for one attempt", property.Once, false, []property.Event{
			event(requested, "a", 0), event(acquired, "a", 1), event(acquired, "a", 2)}},
		{"a stale write is applied", property.G1, false, []property.Event{
			event(property.Entered, "", 2), sent(1), wrote(1, 1, 0, 1)}},
		{"a stale entry is admitted", property.G1, false, []property.Event{
			event(property.Entered, "", 2), event(property.Entered, "", 1)}},
		{"a good write is refused", property.G1, false, []property.Event{
			event(property.Entered, "", 2), sent(1), event(property.Stale, "", 2)}},
		{"an update is lost", property.G2, false, []property.Event{
			sent(1), sent(2), wrote(1, 1, 0, 1), wrote(2, 2, 0, 2)}},
		{"one write twice", property.Once, false, []property.Event{sent(1), wrote(1, 1, 0, 1), wrote(1, 1, 1, 2)}},
		{"refused but applied", property.Once, false, []property.Event{
			sent(1), wrote(1, 1, 0, 1), {Kind: property.Rejected, Resource: "r", Op: 1}}},
		{"acknowledged but not applied", property.Survives, false, []property.Event{sent(1), acknowledged(1)}},
		{"acknowledged but missing at the end", property.Survives, false, []property.Event{
			sent(1), wrote(1, 1, 0, 1), acknowledged(1), {Kind: property.Found, Resource: "r", Version: 0}}},
		{"two holders in the log", property.M1, true, []property.Event{
			event(requested, "a", 0), event(requested, "b", 0), event(property.Granted, "a", 1),
			event(property.Granted, "b", 2)}},
		{"one attempt granted twice in the log", property.Once, true, []property.Event{
			event(requested, "a", 0), event(property.Granted, "a", 1), event(property.Freed, "a", 1),
			event(property.Granted, "a", 2)}},
		{"a smaller token in the log", property.T2, true, []property.Event{event(requested, "a", 0), event(requested, "b", 0),
			event(property.Granted, "a", 3), event(property.Freed, "a", 3), event(property.Granted, "b", 2)}},
		{"a grant that is not in the log", property.Survives, true, []property.Event{event(requested, "a", 0),
			event(acquired, "a", 1)}},
		{"replicas differ", property.Chain, false, []property.Event{applied("1", 7, 1), applied("2", 7, 2)}},
	} {
		t.Run(history.name, func(t *testing.T) {
			c := property.NewChecker("test")
			c.Log = history.log
			for i, e := range history.events {
				err := c.Observe(e)
				if i < len(history.events)-1 {
					require.NoError(t, err)
					continue
				}
				var v *property.Violation
				require.True(t, errors.As(err, &v), "no violation reported")
				require.Equal(t, history.violates, v.Property)
			}
			require.Len(t, c.Report(true).Violations, 1)
		})
	}
}

func TestProgressIsRequiredAfterHealing(t *testing.T) {
	c := property.NewChecker("test")
	require.NoError(t, c.Observe(property.Event{Kind: property.Healed}))
	require.Empty(t, c.Report(false).Violations)
	require.Len(t, c.Report(true).Violations, 1)
	require.NoError(t, c.Observe(property.Event{Kind: property.Healed}))
	require.NoError(t, c.Observe(property.Event{Kind: property.Served}))
	require.Len(t, c.Report(true).Violations, 1, "no further violation")
}

// A paused holder overlaps with the next one. The overlap is counted and violates
// nothing.
func TestCheckerCountsOverlaps(t *testing.T) {
	c := property.NewChecker("test")
	for _, e := range []property.Event{
		event(property.Requested, "a", 0), event(property.Acquired, "a", 1), event(property.Acquired, "a", 1),
		{Kind: property.Paused, Who: "a"},
		event(property.Requested, "b", 0), event(property.Acquired, "b", 2), event(property.Entered, "", 2),
		sent(1), wrote(1, 2, 0, 1), acknowledged(1),
		{Kind: property.Resumed, Who: "a"}, sent(2), {Kind: property.Stale, Resource: "r", Op: 2, Token: 1},
		{Kind: property.Rejected, Resource: "r", Op: 2}, event(property.Ended, "a", 1), event(property.Ended, "b", 2),
		{Kind: property.Found, Resource: "r", Version: 1},
	} {
		require.NoError(t, c.Observe(e))
	}
	r := c.Report(true)
	require.Equal(t, 1, r.Overlaps)
	require.Equal(t, 1, r.Stale)
	require.Equal(t, map[string]int{"paused": 1}, r.Faults)
	require.Equal(t, 6, r.Operations)
}

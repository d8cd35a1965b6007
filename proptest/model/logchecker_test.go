package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
)

func event(kind model.EventKind, id engine.SessionID, nonce engine.Nonce, token fencing.Token,
	names ...fencing.Resource) model.Event {
	return model.Event{Kind: kind, Session: id, Nonce: nonce, Token: token, Resources: names}
}

func slot(e model.Event, n int) model.Event {
	e.Slot = n
	return e
}

// requireViolation requires err to be a violation of a property, or nil for "".
func requireViolation(t *testing.T, want model.Property, err error) {
	t.Helper()
	if want == "" {
		require.NoError(t, err)
		return
	}
	var v *model.Violation
	require.ErrorAs(t, err, &v)
	require.Equal(t, want, v.Property, v.Error())
}

// TestLogChecker has one violation of each property, and histories without one.
func TestLogChecker(t *testing.T) {
	const queued, granted, released, cancelled, delayed = model.WasQueued, model.WasGranted, model.WasReleased,
		model.WasCancelled, model.WasDelayed
	permit := engine.Request{Nonce: 1, Kind: engine.Permit, Permits: 1, Resources: []fencing.Resource{"a"}, Wait: true}
	permits := permit
	permits.Permits = 2
	writer, reader := want(1, engine.Exclusive, "a"), want(1, engine.Shared, "a")
	delay := model.Event{Kind: delayed, Resources: []fencing.Resource{"a"}}
	for _, c := range []struct {
		name     string
		ann, bob engine.Request
		eve      engine.Request // after them
		events   []model.Event
		violated model.Property // by the last event, or by CheckWaiters after it
	}{
		{"handoff", writer, writer, reader, []model.Event{event(granted, ann, 1, 1, "a"), event(queued, bob, 1, 0, "a"),
			event(released, ann, 1, 1, "a"), event(granted, bob, 1, 2, "a")}, ""},
		{"token twice", reader, reader, reader, []model.Event{event(granted, ann, 1, 1, "a"), event(granted, bob, 1, 1, "a")},
			model.T1},
		{"smaller token", reader, reader, reader, []model.Event{event(granted, ann, 1, 2, "a"),
			event(granted, bob, 1, 1, "a")}, model.T2},
		{"no token", reader, reader, reader, []model.Event{event(granted, ann, 1, 0, "a")}, model.T2},
		{"two writers", writer, writer, reader, []model.Event{event(granted, ann, 1, 1, "a"), event(granted, bob, 1, 2, "a")},
			model.M1},
		{"writer beside reader", reader, writer, reader, []model.Event{event(granted, ann, 1, 1, "a"),
			event(granted, bob, 1, 2, "a")}, model.M1},
		{"reader beside permit", permit, reader, reader, []model.Event{slot(event(granted, ann, 1, 1, "a"), 1),
			event(granted, bob, 1, 2, "a")}, model.M1},
		{"slot twice", permit, permit, reader, []model.Event{slot(event(granted, ann, 1, 1, "a"), 1),
			slot(event(granted, bob, 1, 2, "a"), 1)}, model.M1},
		{"another number of permits", permit, permits, reader, []model.Event{slot(event(granted, ann, 1, 1, "a"), 1),
			slot(event(granted, bob, 1, 2, "a"), 2)}, model.M1},
		{"slot out of range", permit, permit, reader, []model.Event{slot(event(granted, ann, 1, 1, "a"), 2)}, model.M1},
		{"granted again", writer, writer, reader, []model.Event{event(granted, ann, 1, 1, "a"),
			event(released, ann, 1, 1, "a"), event(granted, ann, 1, 2, "a")}, model.Once},
		{"queued again", writer, writer, reader, []model.Event{event(granted, ann, 1, 1, "a"), event(queued, ann, 1, 0, "a")},
			model.Once},
		{"reader overtakes writer", reader, writer, reader, []model.Event{event(granted, ann, 1, 1, "a"),
			event(queued, bob, 1, 0, "a"), event(granted, eve, 1, 2, "a")}, model.FIFO},
		{"lost wake-up", writer, writer, reader, []model.Event{event(granted, ann, 1, 1, "a"), event(queued, bob, 1, 0, "a"),
			event(released, ann, 1, 1, "a")}, model.WakeUp},
		{"lost wake-up after a cancel", reader, writer, reader, []model.Event{event(granted, ann, 1, 1, "a"),
			event(queued, bob, 1, 0, "a"), event(queued, eve, 1, 0, "a"), event(cancelled, bob, 1, 0, "a")}, model.WakeUp},
		{"grant in a delay", writer, writer, reader, []model.Event{delay, event(granted, bob, 1, 1, "a")}, model.Delay},
		{"opened twice", writer, writer, reader, []model.Event{{Kind: model.WasOpened, Resources: []fencing.Resource{"a"}}},
			model.Complete},
		{"cancelled without waiting", writer, writer, reader, []model.Event{event(cancelled, bob, 1, 0, "a")},
			model.Complete},
		{"broken without holding", writer, writer, reader, []model.Event{event(model.WasBroken, bob, 1, 1, "a")},
			model.Complete},
		{"expired with another token", writer, writer, reader, []model.Event{event(granted, ann, 1, 1, "a"),
			event(model.WasExpired, ann, 1, 2, "a")}, model.Complete},
		{"half a set", want(1, engine.Exclusive, "a", "b"), writer, reader, []model.Event{event(granted, ann, 1, 1, "a")},
			model.Complete},
		{"queued without wait", engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}}, writer, reader,
			[]model.Event{event(queued, ann, 1, 0, "a")}, model.Complete},
		{"granted without a request", writer, writer, reader, []model.Event{event(granted, ann, 7, 1, "a")}, model.Complete},
		{"unknown", writer, writer, reader, []model.Event{{Kind: "unknown"}}, model.Complete},
	} {
		t.Run(c.name, func(t *testing.T) {
			checker := model.NewLogChecker()
			checker.Requested(model.Session{ID: ann}, c.ann)
			checker.Requested(model.Session{ID: bob}, c.bob)
			checker.Requested(model.Session{ID: eve}, c.eve)
			var err error
			for i, e := range c.events {
				require.NoError(t, err, "before event %d", i)
				err = checker.Observe(e)
			}
			if err == nil {
				err = checker.CheckWaiters()
			}
			requireViolation(t, c.violated, err)
		})
	}
}

func TestLogCheckerFloorAndSessions(t *testing.T) {
	checker := model.NewLogChecker()
	first, second, other := model.Session{ID: ann}, model.Session{ID: ann, Incarnation: 2}, model.Session{ID: bob}
	checker.Requested(first, want(1, engine.Exclusive, "a"))
	checker.RaiseFloor(10)
	require.Error(t, checker.Observe(event(model.WasGranted, ann, 1, 10, "a")), "at the floor")
	require.NoError(t, checker.Observe(event(model.WasGranted, ann, 1, 11, "a")))
	checker.SessionEnded(first)
	require.Error(t, checker.AllEnded(), "it still holds")
	checker.Requested(second, want(1, engine.Exclusive, "a"))
	inSecond := func(e model.Event) model.Event {
		e.Incarnation = 2
		return e
	}
	requireViolation(t, model.M1, checker.Observe(inSecond(event(model.WasGranted, ann, 1, 12, "a"))))
	require.NoError(t, checker.Observe(event(model.WasExpired, ann, 1, 11, "a")))
	require.NoError(t, checker.AllEnded())
	require.NoError(t, checker.Observe(inSecond(event(model.WasGranted, ann, 1, 12, "a"))),
		"a new session with the same id")

	checker.Requested(first, want(2, engine.Exclusive, "b"))
	requireViolation(t, model.Over, checker.Observe(event(model.WasGranted, ann, 2, 13, "b")))
	requireViolation(t, model.Over, checker.Observe(event(model.WasQueued, ann, 2, 0, "b")))

	checker.Requested(other, want(1, engine.Exclusive, "a"))
	require.NoError(t, checker.Observe(event(model.WasQueued, bob, 1, 0, "a")))
	require.NoError(t, checker.Observe(inSecond(event(model.WasReleased, ann, 1, 12, "a"))))
	require.Error(t, checker.CheckWaiters())
	checker.RaiseFloor(fencing.MaxToken)
	require.NoError(t, checker.CheckWaiters(), "no tokens are left")
}

// A waiter whose session has ended keeps its place until its own end, and is not granted.
func TestLogCheckerWaiterOfAnEndedSession(t *testing.T) {
	checker := model.NewLogChecker()
	for _, id := range []engine.SessionID{ann, bob, eve} {
		checker.Requested(model.Session{ID: id}, want(1, engine.Exclusive, "a"))
	}
	require.NoError(t, checker.Observe(event(model.WasGranted, ann, 1, 1, "a")))
	require.NoError(t, checker.Observe(event(model.WasQueued, bob, 1, 0, "a")))
	require.NoError(t, checker.Observe(event(model.WasQueued, eve, 1, 0, "a")))
	checker.SessionEnded(model.Session{ID: bob})
	require.NoError(t, checker.Observe(event(model.WasReleased, ann, 1, 1, "a")))
	require.NoError(t, checker.CheckWaiters())
	requireViolation(t, model.FIFO, checker.Observe(event(model.WasGranted, eve, 1, 2, "a")))
	requireViolation(t, model.Complete, checker.AllEnded())
	require.NoError(t, checker.Observe(event(model.WasCancelled, bob, 1, 0, "a")))
	requireViolation(t, model.WakeUp, checker.CheckWaiters())
}

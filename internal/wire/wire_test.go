package wire_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// sentinels returns the sentinel of every row of the table.
func sentinels() []error {
	var list []error
	for _, k := range wire.Kinds {
		list = append(list, k.Sentinel)
	}
	return list
}

// TestErrors checks that an error matches the same sentinels after it was sent
// over a stream or as a gRPC status.
func TestErrors(t *testing.T) {
	mode := &engine.ModeError{Resource: "a", Want: engine.Efficiency, Have: engine.Correctness}
	for _, err := range append(sentinels(), mode, &wire.NotLeaderError{Leader: "127.0.0.1:7420", Text: "not the leader"}) {
		wrapped := fmt.Errorf("do something: %w", err)
		for transport, back := range map[string]error{
			"stream": wire.ToError(wire.FromError(wrapped)),
			"status": wire.FromStatus(wire.ToStatus(wrapped)),
		} {
			t.Run(fmt.Sprintf("%v over %s", err, transport), func(t *testing.T) {
				for _, sentinel := range sentinels() {
					require.Equal(t, errors.Is(wrapped, sentinel), errors.Is(back, sentinel), "%v", sentinel)
				}
				require.NotEmpty(t, wire.FromError(wrapped).Hint, "every error has a hint")
			})
		}
	}
	var back *engine.ModeError
	require.ErrorAs(t, wire.ToError(wire.FromError(fmt.Errorf("acquire: %w", mode))), &back)
	require.Equal(t, mode, back)
	move := &engine.MigratingError{Resource: "a", From: engine.Efficiency, To: engine.Correctness}
	var moving *engine.MigratingError
	require.ErrorAs(t, wire.ToError(wire.FromError(fmt.Errorf("acquire: %w", move))), &moving)
	require.Equal(t, move, moving)
	require.ErrorAs(t, wire.FromStatus(wire.ToStatus(move)), &moving)
	require.NotErrorAs(t, wire.ToError(wire.FromError(fmt.Errorf("%w, then %w", engine.ErrUncertain, move))), &moving,
		"the attempt may have been granted")
	var leader *wire.NotLeaderError
	require.ErrorAs(t, wire.ToError(wire.FromError(&wire.NotLeaderError{Leader: "x", Text: "y"})), &leader)
	require.Equal(t, "x", leader.Leader)

	answer := wire.FromError(engine.ErrLimit)
	answer.RetryAfter = "7s"
	require.Equal(t, answer, wire.FromError(wire.ToError(answer)), "a member passes it on")
}

// TestUncertainErrorTakesPrecedence checks that a call that may have had an effect is
// never reported as refused.
func TestUncertainErrorTakesPrecedence(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("%w, then %w", engine.ErrUncertain, engine.ErrUnavailable),
		fmt.Errorf("%w, then %w", engine.ErrUncertain, wire.ErrUnauthenticated),
		fmt.Errorf("%w: %w", engine.ErrUncertain, context.Canceled),
		errors.New("an unexpected error"),
	} {
		back := wire.ToError(wire.FromError(err))
		require.ErrorIs(t, back, engine.ErrUncertain)
		require.NotErrorIs(t, back, engine.ErrUnavailable)
	}
	require.ErrorIs(t, wire.FromStatus(errors.New("connection reset")), engine.ErrUncertain)
	require.NoError(t, wire.FromStatus(nil))
	require.NoError(t, wire.ToStatus(nil))
	require.NoError(t, wire.ToError(nil))
}

func TestRequests(t *testing.T) {
	for _, r := range []engine.Request{
		{Nonce: 1, Resources: []fencing.Resource{"a"}},
		{Nonce: 2, Resources: []fencing.Resource{"a", "b"}, Kind: engine.Shared, Mode: engine.Efficiency, Wait: true,
			Holder:   "h",
			Metadata: map[string]string{"k": "v"}},
		{Nonce: 3, Resources: []fencing.Resource{"a"}, Kind: engine.Permit, Permits: 3, Mode: engine.Correctness},
	} {
		back, err := wire.ToRequest(wire.FromRequest(&r))
		require.NoError(t, err)
		require.Equal(t, r, back)
	}
}

func TestStatuses(t *testing.T) {
	since := time.Date(2024, 2, 29, 12, 0, 0, 5e6, time.UTC)
	s := engine.Status{Resource: "a", Mode: engine.Correctness, Delayed: true,
		Holders: []engine.Party{{Holder: "h", Session: engine.NewSessionID(), Nonce: 7, Kind: engine.Permit, Slot: 2,
			Token:    9,
			Metadata: map[string]string{"k": "v"}, TTL: 1500 * time.Millisecond, Since: since}},
		Waiters: []engine.Party{{Session: engine.NewSessionID(), Nonce: 8, Kind: engine.Shared}}}
	require.Equal(t, "1m0s", wire.FromStatusOf(s, since.Add(time.Minute)).Holders[0].Age)
	back, err := wire.ToStatusOf(wire.FromStatusOf(s, since.Add(time.Minute)))
	require.NoError(t, err)
	require.Equal(t, s, back)
}

func TestPolicies(t *testing.T) {
	p := engine.Policy{Prefix: "report/", Mode: engine.Correctness, TTL: 3 * time.Second, LockDelay: time.Minute}
	back, err := wire.ToPolicy(wire.FromPolicy(p))
	require.NoError(t, err)
	require.Equal(t, p, back)
	_, err = wire.ToPolicy(wire.FromPolicy(engine.Policy{Prefix: "x"}))
	require.ErrorIs(t, err, engine.ErrInvalid, "a policy has a mode")
	_, err = wire.ParseDuration("ttl", "ten seconds")
	require.ErrorIs(t, err, engine.ErrInvalid)
}

func TestTopology(t *testing.T) {
	policies, err := engine.NewPolicies(
		engine.Policy{Mode: engine.Correctness, LockDelay: time.Second},
		engine.Policy{Prefix: "fast/", Mode: engine.Efficiency, TTL: time.Minute, Renew: 10 * time.Second,
			Drift: time.Second},
		engine.Policy{Prefix: "moving/", Mode: engine.Efficiency, Next: engine.Correctness})
	require.NoError(t, err)
	for name, topology := range map[string]engine.Topology{
		"empty": {},
		"full": {Version: 12, Policies: policies, Ready: true, Lives: []string{"x.j", "", "y.k"},
			Fleet: engine.Fleet{Namespace: "leased", Addresses: []string{"c:1", "a:1", "b:1"}, MaxTTL: time.Minute}},
	} {
		back, err := wire.ToTopology(wire.FromTopology(topology))
		require.NoError(t, err, name)
		require.Equal(t, topology.Policies.All(), back.Policies.All(), name)
		topology.Policies, back.Policies = engine.Policies{}, engine.Policies{}
		require.Equal(t, topology, back, name)
	}
	short := wire.FromTopology(engine.Topology{Lives: []string{"a.j"},
		Fleet: engine.Fleet{Namespace: "x", Addresses: []string{"a:1", "b:1", "c:1"}, MaxTTL: time.Minute}})
	_, err = wire.ToTopology(short)
	require.ErrorIs(t, err, engine.ErrInvalid, "a life of each node, or none")
	bad := wire.FromTopology(engine.Topology{Fleet: engine.Fleet{Namespace: "x", Addresses: []string{"a:1", "b:1"},
		MaxTTL: time.Minute}})
	_, err = wire.ToTopology(bad)
	require.ErrorIs(t, err, engine.ErrInvalid)
}

func TestHeld(t *testing.T) {
	held := engine.Held{Name: "x.7.2", Session: engine.NewSessionID(), Nonce: 7, Resources: []fencing.Resource{"a", "b"},
		Token: 12,
		TTL:   10 * time.Second, Holder: "worker", Metadata: map[string]string{"job": "nightly"}}
	require.Equal(t, held, wire.ToHeld(held.Session, wire.FromHeld(held)))
}

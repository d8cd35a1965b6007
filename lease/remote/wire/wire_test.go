package wire_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/perlease"
	"github.com/leased-project/leased/lease/remote/wire"
)

var sentinels = []error{
	lease.ErrHeld, lease.ErrLost, lease.ErrNotHeld, lease.ErrExpired, lease.ErrTaken, lease.ErrReleased, lease.ErrUnavailable,
	lease.ErrUncertain, lease.ErrModeMismatch, lease.ErrUnsupported, lease.ErrInvalid, fencing.ErrInvalidResource,
	wire.ErrOutdated, wire.ErrUnauthenticated, context.Canceled, context.DeadlineExceeded,
}

// TestErrors: an error matches on the other side what it matched on this one,
// and nothing else, over a stream and as a gRPC status.
func TestErrors(t *testing.T) {
	mode := &lease.ModeError{Resource: "a", Want: lease.Efficiency, Have: lease.Correctness}
	for _, err := range []error{
		lease.ErrHeld, lease.ErrLost, lease.ErrNotHeld, lease.ErrExpired, lease.ErrTaken, lease.ErrReleased, lease.ErrUnavailable,
		lease.ErrUncertain, lease.ErrUnsupported, lease.ErrInvalid, fencing.ErrInvalidResource, wire.ErrOutdated, wire.ErrUnauthenticated,
		context.Canceled, context.DeadlineExceeded, mode, &wire.NotLeaderError{Leader: "127.0.0.1:7420", Text: "ask another"},
	} {
		wrapped := fmt.Errorf("do something: %w", err)
		for way, back := range map[string]error{
			"stream": wire.ToError(wire.FromError(wrapped)),
			"status": wire.FromStatus(wire.ToStatus(wrapped)),
		} {
			t.Run(fmt.Sprintf("%v over %s", err, way), func(t *testing.T) {
				for _, sentinel := range sentinels {
					require.Equal(t, errors.Is(wrapped, sentinel), errors.Is(back, sentinel), "%v", sentinel)
				}
				require.NotEmpty(t, wire.FromError(wrapped).Hint, "an error says what to do")
			})
		}
	}
	var back *lease.ModeError
	require.ErrorAs(t, wire.ToError(wire.FromError(fmt.Errorf("acquire: %w", mode))), &back)
	require.Equal(t, mode, back)
	move := &lease.MovingError{Resource: "a", From: lease.Efficiency, To: lease.Correctness}
	var moving *lease.MovingError
	require.ErrorAs(t, wire.ToError(wire.FromError(fmt.Errorf("acquire: %w", move))), &moving)
	require.Equal(t, move, moving)
	require.ErrorAs(t, wire.FromStatus(wire.ToStatus(move)), &moving)
	require.NotErrorAs(t, wire.ToError(wire.FromError(fmt.Errorf("%w, then %w", lease.ErrUncertain, move))), &moving, "it may have been granted")
	var leader *wire.NotLeaderError
	require.ErrorAs(t, wire.ToError(wire.FromError(&wire.NotLeaderError{Leader: "x", Text: "y"})), &leader)
	require.Equal(t, "x", leader.Leader)
}

// TestUncertainWins: what may have happened is never told as a refusal.
func TestUncertainWins(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("%w, then %w", lease.ErrUncertain, lease.ErrUnavailable),
		fmt.Errorf("%w, then %w", lease.ErrUncertain, wire.ErrUnauthenticated),
		fmt.Errorf("%w: %w", lease.ErrUncertain, context.Canceled),
		errors.New("something that nobody has thought of"),
	} {
		back := wire.ToError(wire.FromError(err))
		require.ErrorIs(t, back, lease.ErrUncertain)
		require.NotErrorIs(t, back, lease.ErrUnavailable)
	}
	require.ErrorIs(t, wire.FromStatus(errors.New("connection reset")), lease.ErrUncertain)
	require.NoError(t, wire.FromStatus(nil))
	require.NoError(t, wire.ToStatus(nil))
	require.NoError(t, wire.ToError(nil))
}

func TestRequests(t *testing.T) {
	for _, r := range []lease.Request{
		{Nonce: 1, Resources: []fencing.Resource{"a"}},
		{Nonce: 2, Resources: []fencing.Resource{"a", "b"}, Kind: lease.Shared, Mode: lease.Efficiency, Wait: true, Holder: "h",
			Metadata: map[string]string{"k": "v"}},
		{Nonce: 3, Resources: []fencing.Resource{"a"}, Kind: lease.Permit, Permits: 3, Mode: lease.Correctness},
	} {
		back, err := wire.ToRequest(wire.FromRequest(&r))
		require.NoError(t, err)
		require.Equal(t, r, back)
	}
}

func TestStatuses(t *testing.T) {
	s := lease.Status{Resource: "a", Mode: lease.Correctness, Delayed: true,
		Holders: []lease.Party{{Holder: "h", Session: lease.NewSessionID(), Nonce: 7, Kind: lease.Permit, Slot: 2, Token: 9,
			Metadata: map[string]string{"k": "v"}, TTL: 1500 * time.Millisecond}},
		Waiters: []lease.Party{{Session: lease.NewSessionID(), Nonce: 8, Kind: lease.Shared}}}
	back, err := wire.ToStatusOf(wire.FromStatusOf(s))
	require.NoError(t, err)
	require.Equal(t, s, back)
}

func TestPolicies(t *testing.T) {
	p := lease.Policy{Prefix: "report/", Mode: lease.Correctness, TTL: 3 * time.Second, LockDelay: time.Minute}
	back, err := wire.ToPolicy(wire.FromPolicy(p))
	require.NoError(t, err)
	require.Equal(t, p, back)
	_, err = wire.ToPolicy(wire.FromPolicy(lease.Policy{Prefix: "x"}))
	require.ErrorIs(t, err, lease.ErrInvalid, "a policy names a mode")
	_, err = wire.ParseDuration("ttl", "ten seconds")
	require.ErrorIs(t, err, lease.ErrInvalid)
}

func TestTopology(t *testing.T) {
	policies, err := lease.NewPolicies(
		lease.Policy{Mode: lease.Correctness, LockDelay: time.Second},
		lease.Policy{Prefix: "fast/", Mode: lease.Efficiency, TTL: time.Minute, Renew: 10 * time.Second, Drift: time.Second},
		lease.Policy{Prefix: "moving/", Mode: lease.Efficiency, Next: lease.Correctness})
	require.NoError(t, err)
	for name, topology := range map[string]lease.Topology{
		"empty": {},
		"full": {Version: 12, Policies: policies, Ready: true,
			Fleet: lease.Fleet{Namespace: "leased", Addresses: []string{"c:1", "a:1", "b:1"}, MaxTTL: time.Minute}},
	} {
		back, err := wire.ToTopology(wire.FromTopology(topology))
		require.NoError(t, err, name)
		require.Equal(t, topology.Policies.All(), back.Policies.All(), name)
		topology.Policies, back.Policies = lease.Policies{}, lease.Policies{}
		require.Equal(t, topology, back, name)
	}
	bad := wire.FromTopology(lease.Topology{Fleet: lease.Fleet{Namespace: "x", Addresses: []string{"a:1", "b:1"}, MaxTTL: time.Minute}})
	_, err = wire.ToTopology(bad)
	require.ErrorIs(t, err, lease.ErrInvalid)
}

func TestHeld(t *testing.T) {
	held := perlease.Held{Name: "x.7.2", Session: lease.NewSessionID(), Nonce: 7, Resources: []fencing.Resource{"a", "b"}, Token: 12,
		TTL: 10 * time.Second, Holder: "worker", Metadata: map[string]string{"job": "nightly"}}
	require.Equal(t, held, wire.ToHeld(held.Session, wire.FromHeld(held)))
}

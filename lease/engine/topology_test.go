package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func fleet(addresses ...string) engine.Fleet {
	return engine.Fleet{Namespace: "leased", Addresses: addresses, MaxTTL: time.Minute}
}

func topology(t *testing.T, policies ...engine.Policy) engine.Topology {
	t.Helper()
	set, err := engine.NewPolicies(policies...)
	require.NoError(t, err)
	return engine.Topology{Version: 7, Policies: set, Fleet: fleet("a:1", "b:1", "c:1"), Ready: true}
}

func TestRoute(t *testing.T) {
	full := topology(t,
		engine.Policy{Prefix: "fast/", Mode: engine.Efficiency},
		engine.Policy{Prefix: "fast/strict/", Mode: engine.Correctness},
		engine.Policy{Prefix: "moving/", Mode: engine.Efficiency, Next: engine.Correctness})
	bare, recovering := full, full
	bare.Fleet = engine.Fleet{}
	recovering.Ready = false

	tests := []struct {
		name     string
		topology engine.Topology
		request  engine.Request
		want     engine.Mode
		err      error
		says     string
	}{
		{name: "no policy", topology: full, request: engine.Request{}, want: engine.Correctness},
		{name: "efficiency", topology: full, request: on("fast/a"), want: engine.Efficiency},
		{name: "the longest prefix", topology: full, request: on("fast/strict/a"), want: engine.Correctness},
		{name: "as expected", topology: full, request: expecting(engine.Efficiency, "fast/a"), want: engine.Efficiency},
		{name: "a set of one mode", topology: full, request: on("fast/a", "fast/b"), want: engine.Efficiency},
		{name: "shared in correctness", topology: full, request: kind(engine.Shared, "a"), want: engine.Correctness},
		{name: "correctness without nodes", topology: bare, request: on("a"), want: engine.Correctness},
		{name: "correctness while recovering", topology: recovering, request: on("a"), want: engine.Correctness},

		{name: "another mode", topology: full, request: expecting(engine.Correctness, "fast/a"), err: engine.ErrModeMismatch,
			says: "fast/a"},
		{name: "another mode without a policy", topology: full, request: expecting(engine.Efficiency, "a"),
			err: engine.ErrModeMismatch, says: "correctness"},
		{name: "a set of two modes", topology: full, request: on("a", "fast/b"), err: engine.ErrInvalid,
			says: "one after the other"},
		{name: "moving", topology: full, request: on("moving/a"), err: engine.ErrUnavailable,
			says: "from efficiency to correctness"},
		{name: "a set with a moving lock", topology: full, request: on("fast/a", "moving/a"), err: engine.ErrUnavailable,
			says: "moving/a"},
		{name: "shared in efficiency", topology: full, request: kind(engine.Shared, "fast/a"), err: engine.ErrUnsupported,
			says: "correctness"},
		{name: "permits in efficiency", topology: full, request: kind(engine.Permit, "fast/a"), err: engine.ErrUnsupported,
			says: "correctness"},
		{name: "no nodes", topology: bare, request: on("fast/a"), err: engine.ErrUnsupported, says: "leased redis fleet set"},
		{name: "not ready", topology: recovering, request: on("fast/a"), err: engine.ErrUnavailable,
			says: "leased redis status"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if len(tt.request.Resources) == 0 {
				tt.request.Resources = []fencing.Resource{"a"}
			}
			mode, err := tt.topology.Route(&tt.request)
			require.Equal(t, tt.want, mode)
			if tt.err == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, tt.err)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func on(names ...fencing.Resource) engine.Request { return engine.Request{Resources: names} }

func expecting(mode engine.Mode, name fencing.Resource) engine.Request {
	return engine.Request{Resources: []fencing.Resource{name}, Mode: mode}
}

func kind(kind engine.Kind, name fencing.Resource) engine.Request {
	return engine.Request{Resources: []fencing.Resource{name}, Kind: kind}
}

func TestMigratingErrorNamesTheLock(t *testing.T) {
	moving := topology(t, engine.Policy{Prefix: "a/", Mode: engine.Correctness, Next: engine.Efficiency})
	_, err := moving.ModeOf("a/1")
	var move *engine.MigratingError
	require.ErrorAs(t, err, &move)
	require.Equal(t, engine.MigratingError{Resource: "a/1", From: engine.Correctness, To: engine.Efficiency}, *move)
	require.ErrorIs(t, err, engine.ErrUnavailable, "trying again is safe")
	require.NotErrorIs(t, err, engine.ErrUncertain)
	require.ErrorContains(t, err, `lock "a/1" is migrating from correctness to efficiency mode`)
	require.ErrorContains(t, err, "leased policy show")
}

func TestFingerprintIsOfTheMembers(t *testing.T) {
	a := fleet("a:1", "b:1", "c:1")
	require.Len(t, a.Fingerprint(), 16)
	require.Equal(t, a.Fingerprint(), fleet("c:1", "a:1", "b:1").Fingerprint(), "in any order")
	for name, other := range map[string]engine.Fleet{
		"fewer":   fleet("a:1", "b:1"),
		"more":    fleet("a:1", "b:1", "c:1", "d:1"),
		"another": fleet("a:1", "b:1", "c:2"),
		"none":    fleet(),
	} {
		require.NotEqual(t, a.Fingerprint(), other.Fingerprint(), name)
		require.False(t, a.Equal(other), name)
	}
	require.True(t, a.Equal(fleet("b:1", "c:1", "a:1")))
	longer := fleet("a:1", "b:1", "c:1")
	longer.MaxTTL *= 2
	require.False(t, a.Equal(longer))
	elsewhere := fleet("a:1", "b:1", "c:1")
	elsewhere.Namespace = "other"
	require.False(t, a.Equal(elsewhere))
}

func TestFleetValidate(t *testing.T) {
	tests := []struct {
		name  string
		fleet engine.Fleet
		says  string // empty if the fleet is good
	}{
		{"no nodes", engine.Fleet{}, ""},
		{"one", fleet("a:1"), ""},
		{"five", fleet("a:1", "b:1", "c:1", "d:1", "[::1]:6379"), ""},
		{"even", fleet("a:1", "b:1"), "odd number"},
		{"twice", fleet("a:1", "b:1", "a:1"), "listed twice"},
		{"no port", fleet("a"), "host:port"},
		{"no host", fleet(":6379"), "host:port"},
		{"no namespace", engine.Fleet{Addresses: []string{"a:1"}, MaxTTL: time.Minute}, "namespace"},
		{"a brace in the namespace", engine.Fleet{Namespace: "a}b", Addresses: []string{"a:1"}, MaxTTL: time.Minute},
			"namespace"},
		{"no longest TTL", engine.Fleet{Namespace: "a", Addresses: []string{"a:1"}}, "longest TTL"},
		{"too long", engine.Fleet{Namespace: "a", Addresses: []string{"a:1"}, MaxTTL: 25 * time.Hour}, "longest TTL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.fleet.Validate()
			if tt.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, engine.ErrInvalid)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

package engine_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func TestPolicyValidateNamesBothFields(t *testing.T) {
	tests := []struct {
		name   string
		policy engine.Policy
		names  []string // what the error must name; empty if the policy is good
	}{
		{"all defaults", engine.Policy{}, nil},
		{"a full one", engine.Policy{Prefix: "report/", Mode: engine.Correctness, TTL: time.Minute, Renew: 20 * time.Second,
			Drift: time.Second, LockDelay: time.Second}, nil},
		{"lock-delay in efficiency mode", engine.Policy{Mode: engine.Efficiency, LockDelay: time.Second},
			[]string{"lock-delay (1s)", "mode (efficiency)", "remove it"}},
		{"lock-delay while moving to efficiency mode", engine.Policy{Mode: engine.Correctness, Next: engine.Efficiency,
			LockDelay: time.Second}, []string{"lock-delay (1s)", "mode (efficiency)"}},
		{"smallest ttl", engine.Policy{TTL: engine.MinTTL}, nil},
		{"ttl too small", engine.Policy{TTL: time.Millisecond}, []string{"ttl (1ms)", "10ms"}},
		{"ttl too large", engine.Policy{TTL: 25 * time.Hour}, []string{"ttl (25h0m0s)", "24h"}},
		{"negative ttl", engine.Policy{TTL: -time.Second}, []string{"ttl (-1s)"}},
		{"renew above ttl", engine.Policy{TTL: time.Second, Renew: 2 * time.Second}, []string{"renew (2s)", "ttl (1s)",
			"drift (12ms)"}},
		{"renew leaves no room for drift", engine.Policy{TTL: 10 * time.Second, Renew: 8 * time.Second,
			Drift: 3 * time.Second}, []string{"renew (8s)", "ttl (10s)", "drift (3s)"}},
		{"absurd renew", engine.Policy{Renew: math.MaxInt64}, []string{"renew (", "ttl (10s)"}},
		{"negative renew", engine.Policy{Renew: -1}, []string{"renew (-1ns)", "ttl"}},
		{"drift above ttl", engine.Policy{TTL: time.Second, Drift: time.Second}, []string{"drift (1s)", "ttl (1s)"}},
		{"negative drift", engine.Policy{Drift: -1}, []string{"drift (-1ns)", "ttl"}},
		{"lock-delay", engine.Policy{LockDelay: -1}, []string{"lock-delay (-1ns)"}},
		{"mode", engine.Policy{Mode: 9}, []string{"mode (mode(9))"}},
		{"prefix", engine.Policy{Prefix: "a\n"}, []string{"prefix"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.policy.Validate()
			if tt.names == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, engine.ErrInvalid)
			for _, name := range tt.names {
				require.ErrorContains(t, err, name)
			}
			_, err = engine.NewPolicies(tt.policy)
			require.ErrorIs(t, err, engine.ErrInvalid)
		})
	}
}

func TestLongestPrefixWins(t *testing.T) {
	policies, err := engine.NewPolicies(
		engine.Policy{Prefix: "", Mode: engine.Correctness, TTL: time.Second},
		engine.Policy{Prefix: "report/", Mode: engine.Efficiency, TTL: 2 * time.Second},
		engine.Policy{Prefix: "report/tax/", Mode: engine.Correctness, TTL: 3 * time.Second},
	)
	require.NoError(t, err)
	for resource, want := range map[fencing.Resource]time.Duration{
		"orders": time.Second, "report": time.Second, "report/": 2 * time.Second, "report/may": 2 * time.Second,
		"report/tax": 2 * time.Second, "report/tax/2026": 3 * time.Second,
	} {
		require.Equal(t, want, policies.For(resource).TTL, "%s", resource)
	}
	_, err = engine.NewPolicies(engine.Policy{Prefix: "a"}, engine.Policy{Prefix: "a"})
	require.ErrorContains(t, err, `two policies for the prefix "a"`)

	defaults := engine.Policies{}.For("anything")
	require.Equal(t, engine.DefaultTTL, defaults.TTL)
	require.Equal(t, engine.DefaultTTL/3, defaults.Renew)
	require.Equal(t, engine.DefaultTTL/100+2*time.Millisecond, defaults.Drift)
}

func TestPoliciesAgreeWithAScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.StringOfN(rapid.RuneFrom([]rune("ab/")), 0, 4, -1)
		byPrefix := map[string]engine.Policy{}
		var policies engine.Policies
		for i, prefix := range rapid.SliceOf(names).Draw(t, "prefixes") {
			p := engine.Policy{Prefix: prefix, TTL: time.Duration(i+1) * time.Second}
			byPrefix[prefix] = p
			policies = policies.With(p)
		}
		for _, prefix := range rapid.SliceOf(names).Draw(t, "removed") {
			_, had := byPrefix[prefix]
			delete(byPrefix, prefix)
			var found bool
			policies, found = policies.Without(prefix)
			require.Equal(t, had, found)
		}
		require.Len(t, policies.All(), len(byPrefix))
		resource := rapid.StringOfN(rapid.RuneFrom([]rune("ab/")), 1, 6, -1).Draw(t, "resource")
		want := engine.Policy{TTL: engine.DefaultTTL}
		longest := -1
		for prefix, p := range byPrefix {
			if strings.HasPrefix(resource, prefix) && len(prefix) > longest {
				want, longest = p, len(prefix)
			}
		}
		require.Equal(t, want.TTL, policies.For(fencing.Resource(resource)).TTL)
	})
}

func TestModeText(t *testing.T) {
	for _, mode := range []engine.Mode{engine.Efficiency, engine.Correctness} {
		parsed, err := engine.ParseMode(mode.String())
		require.NoError(t, err)
		require.Equal(t, mode, parsed)
	}
	_, err := engine.ParseMode("fast")
	require.ErrorIs(t, err, engine.ErrInvalid)
	require.ErrorContains(t, err, `"efficiency" or "correctness"`)

	data, err := json.Marshal(struct{ A, B engine.Mode }{engine.Efficiency, engine.AnyMode})
	require.NoError(t, err)
	require.JSONEq(t, `{"A":"efficiency","B":""}`, string(data))
	var back struct{ A, B engine.Mode }
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, engine.Efficiency, back.A)
	_, err = json.Marshal(engine.Mode(9))
	require.Error(t, err)
	require.Error(t, json.Unmarshal([]byte(`{"A":"fast"}`), &back))
}

package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
)

// Fields that are not given keep their values.
func TestPolicyMerge(t *testing.T) {
	existing := []*pb.Policy{
		{Prefix: "", Mode: "correctness", Ttl: "1m"},
		{Prefix: "job/", Mode: "correctness", Ttl: "42s", Renew: "2s", Drift: "1s", LockDelay: "3s"},
		{Prefix: "report/", Mode: "correctness", Next: "efficiency", Ttl: "5s"},
	}
	for name, c := range map[string]struct {
		given, want *pb.Policy
		flags       []string
	}{
		"a mode": {&pb.Policy{Prefix: "job/", Mode: "correctness"},
			&pb.Policy{Prefix: "job/", Mode: "correctness", Ttl: "42s", Renew: "2s", Drift: "1s", LockDelay: "3s"}, nil},
		"a timing": {&pb.Policy{Prefix: "job/", Renew: "4s"},
			&pb.Policy{Prefix: "job/", Mode: "correctness", Ttl: "42s", Renew: "4s", Drift: "1s", LockDelay: "3s"},
			[]string{"renew"}},
		"a default": {&pb.Policy{Prefix: "job/"},
			&pb.Policy{Prefix: "job/", Mode: "correctness", Renew: "2s", Drift: "1s", LockDelay: "3s"}, []string{"ttl"}},
		"no delay in efficiency mode": {&pb.Policy{Prefix: "job/", Mode: "efficiency"},
			&pb.Policy{Prefix: "job/", Mode: "efficiency", Ttl: "42s", Renew: "2s", Drift: "1s"}, nil},
		"during a migration": {&pb.Policy{Prefix: "report/", Ttl: "6s"}, &pb.Policy{Prefix: "report/", Mode: "efficiency",
			Ttl: "6s"}, []string{"ttl"}},
		"another prefix": {&pb.Policy{Prefix: "job/1", Mode: "efficiency"},
			&pb.Policy{Prefix: "job/1", Mode: "efficiency"}, nil},
	} {
		p := &pb.Policy{Prefix: c.given.Prefix}
		require.NoError(t, merge(p, c.given, existing, func(flag string) bool { return slices.Contains(c.flags, flag) }),
			name)
		require.Equal(t, c.want.String(), p.String(), name)
	}
	err := merge(&pb.Policy{}, &pb.Policy{Prefix: "new/"}, existing, func(string) bool { return true })
	require.ErrorIs(t, err, errModeMissing)
	requireUsage(t, err)
}

func requireUsage(t *testing.T, err error) {
	t.Helper()
	code, _ := explain(err)
	require.Equal(t, wire.ExitUsage, code)
}

// All locks need an explicit star, and patterns are rejected.
func TestPrefixToChange(t *testing.T) {
	for arg, want := range map[string]string{"*": "", "job/*": "job/", "job/": "job/"} {
		got, err := prefixToChange(arg)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for arg, want := range map[string]string{"": "give '*'", "a*b*": "may contain * only at its end",
		"*b": "may contain *", "**": "may contain *"} {
		_, err := prefixToChange(arg)
		require.ErrorContains(t, err, want)
		requireUsage(t, err)
	}
}

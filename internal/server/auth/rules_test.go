package auth_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/lease/engine"
)

func TestParseRule(t *testing.T) {
	for _, text := range []string{"acquire:jobs/*", "read:*", "break:jobs/7", "policy:a b:c*", "cluster", "metrics",
		"acquire:ä*"} {
		rule, err := auth.ParseRule(text)
		require.NoError(t, err, text)
		require.Equal(t, text, rule.String())
	}
	for text, message := range map[string]string{
		"": "there is no right", "acquire": "needs a pattern", "acquire:": "needs a pattern", "cluster:*": "has no pattern",
		"cluster:": "has no pattern", "metrics:*": "write metrics alone",
		"write:a": "there is no right", "Acquire:a": "there is no right", "acquire:a*b": "last character",
		"acquire:**": "last character", "policy:jobs/": "end the pattern with *",
		"acquire:a\nb": "unprintable", "acquire:" + strings.Repeat("x", 513): "at most 512",
		" acquire:a": "there is no right",
	} {
		_, err := auth.ParseRule(text)
		require.ErrorIs(t, err, engine.ErrInvalid, text)
		require.ErrorContains(t, err, message, text)
	}
}

// The alphabet of the property test is small, so that names and patterns meet often.
const alphabet = "ab/"

// namesUpTo returns all names of at most n characters.
func namesUpTo(n int) []string {
	names, last := []string{""}, []string{""}
	for range n {
		var next []string
		for _, name := range last {
			for _, c := range alphabet {
				next = append(next, name+string(c))
			}
		}
		names, last = append(names, next...), next
	}
	return names
}

// Rules agree with a naive oracle, which tries every short name: a rule with * grants
// the names that start with the text before it, a rule without * grants that name only.
func TestRulesAgreeWithOracle(t *testing.T) {
	names := namesUpTo(5)
	grants := func(pattern, name string) bool {
		for i := range len(pattern) {
			if pattern[i] == '*' {
				return true
			}
			if i >= len(name) || name[i] != pattern[i] {
				return false
			}
		}
		return len(name) == len(pattern)
	}
	rapid.Check(t, func(t *rapid.T) {
		rights := []string{"acquire", "policy"}
		var rules auth.Rules
		type entry struct{ right, pattern string }
		var entries []entry
		for range rapid.IntRange(0, 3).Draw(t, "rules") {
			e := entry{rapid.SampledFrom(rights).Draw(t, "right"), rapid.StringMatching(`[ab/]{1,3}\*?|\*`).Draw(t, "pattern")}
			if e.right == "policy" { // always of a prefix
				e.pattern = strings.TrimSuffix(e.pattern, "*") + "*"
			}
			rule, err := auth.ParseRule(e.right + ":" + e.pattern)
			require.NoError(t, err)
			rules, entries = append(rules, rule), append(entries, e)
		}
		right := rapid.SampledFrom(rights).Draw(t, "asked")
		granted := func(name string) bool {
			for _, e := range entries {
				if e.right == right && grants(e.pattern, name) {
					return true
				}
			}
			return false
		}
		name := rapid.SampledFrom(namesUpTo(3)).Draw(t, "name")
		rule, ok := rules.Find(auth.Right(right), name)
		require.Equal(t, granted(name), ok)
		require.True(t, !ok || grants(rule.Pattern, name))

		prefix := rapid.SampledFrom(namesUpTo(2)).Draw(t, "prefix")
		one := func(e entry) bool { // a single rule must grant all names with the prefix
			for _, name := range names {
				if e.right != right || strings.HasPrefix(name, prefix) && !grants(e.pattern, name) {
					return false
				}
			}
			return true
		}
		all := false
		for _, e := range entries {
			all = all || one(e)
		}
		_, ok = rules.FindPrefix(auth.Right(right), prefix)
		require.Equal(t, all, ok)
		_, ok = rules.Find(auth.Cluster, "")
		require.False(t, ok, "no rule grants cluster")
	})
}

func TestAdminRules(t *testing.T) {
	for _, right := range []auth.Right{auth.Acquire, auth.Read, auth.Break, auth.Policy, auth.Cluster} {
		_, ok := auth.AdminRules().Find(right, "any")
		require.True(t, ok, right)
		_, ok = auth.AdminRules().FindPrefix(right, "")
		require.True(t, ok, right)
	}
}

package auth

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/lease/engine"
)

// FuzzRule checks that a rule has one text form, and that it grants its right on the
// names of its pattern only.
func FuzzRule(f *testing.F) {
	for _, text := range []string{"acquire:jobs/*", "read:*", "break:a", "cluster", "cluster:*", "acquire:", "acquire:*a",
		"acquire:a**", "nonsense:a", ":", "acquire:a:b", "acquire:\x00"} {
		f.Add(text, "jobs/7")
		f.Add(text, "a")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		rule, err := ParseRule(text)
		if err != nil {
			require.ErrorIs(t, err, engine.ErrInvalid)
			return
		}
		require.Equal(t, text, rule.String())
		for _, right := range append(lockRights, Cluster) {
			_, granted := Rules{rule}.Find(right, name)
			prefix, isPrefix := strings.CutSuffix(rule.Pattern, "*")
			want := right == rule.Right && (right == Cluster || name == rule.Pattern || isPrefix &&
				strings.HasPrefix(name, prefix))
			require.Equal(t, want, granted, "%s on %q by %q", right, name, text)
			if _, all := (Rules{rule}).FindPrefix(right, name); all && right != Cluster {
				_, granted := Rules{rule}.Find(right, name+"x")
				require.True(t, granted, "a right on a prefix is one on each of its names")
			}
		}
	})
}

// FuzzAuthorization checks that no header but that of a user's secret finds a user.
func FuzzAuthorization(f *testing.F) {
	text := "leased_" + strings.Repeat("0a", 32)
	users := NewUsers([]User{{Name: "alice", Hashes: []secret.Hash{secret.HashOf(text)}}})
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer " + text, "bearer " + text, "Bearer  " + text,
		"Bearer " + text + " ", "Basic " + text, text,
		"Bearer " + strings.ToUpper(text), "Bearer leased_" + strings.Repeat("00", 32)} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		found, err := users.find(credential{headers: []string{header}})
		if err == nil {
			require.Equal(t, "alice", found.Name)
			scheme, rest, _ := strings.Cut(header, " ")
			require.True(t, strings.EqualFold(scheme, "Bearer"))
			require.Equal(t, text, rest)
			return
		}
		require.Nil(t, found)
		require.NotContains(t, err.Error(), text, "the error shows a secret")
	})
}

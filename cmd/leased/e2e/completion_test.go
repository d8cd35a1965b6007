//go:build unix

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func countOf(text, part string) int { return strings.Count(text, part) }

// A shell completes the names of locks from the service, and values from lists.
func TestCompletion(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	must(t, env, leased, "acquire", "account/7", "--ttl=10m")
	must(t, env, leased, "acquire", "account/8", "--ttl=10m")
	must(t, env, leased, "acquire", "other", "--ttl=10m")
	must(t, env, leased, "policy", "set", "job/*", "--mode=correctness")
	users := filepath.Join(t.TempDir(), "users.yaml")
	must(t, nil, leased, "user", "add", "alice", "--users="+users)
	for _, c := range []struct {
		line      string
		want, not []string
	}{
		{"inspect acc", []string{"account/7", "account/8"}, []string{"other"}},
		{"release |", []string{"account/7", "other"}, nil},
		{"acquire account/7 a", []string{"account/8"}, []string{"other"}},
		{"run o", []string{"other"}, []string{"account/7"}},
		{"inspect --endpoint=127.0.0.1:1 |", nil, []string{"account/7"}},
		{"acquire x --mode |", []string{"efficiency", "correctness"}, nil},
		{"list --mode c", []string{"correctness"}, nil},
		{"policy set j", []string{"job/*"}, nil},
		{"gate ddl --dialect |", []string{"postgres", "mysql", "sqlite", "kubernetes"}, nil},
		{"serve --log-level |", []string{"debug", "error"}, nil},
		{"user remove --users=" + users + " |", []string{"alice"}, nil},
		{"user secret remove --users=" + users + " |", []string{"alice"}, nil},
		{"cluster remove |", []string{"one"}, nil},
		{"policy |", []string{"show", "apply"}, nil},
	} {
		args := append([]string{leased, "__complete"}, strings.Fields(c.line)...)
		if args[len(args)-1] == "|" {
			args[len(args)-1] = ""
		}
		var offered []string
		eventually(t, func() bool { // a busy service may answer later than a shell waits, which then offers nothing
			offered = nil
			for line := range strings.Lines(must(t, env, args...)) {
				name, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
				offered = append(offered, name)
			}
			return !slices.ContainsFunc(c.want, func(want string) bool { return !slices.Contains(offered, want) })
		}, "for %q to offer %q; it offered %s", c.line, c.want, lazy(func() string { return fmt.Sprint(offered) }))
		for _, not := range c.not {
			require.NotContains(t, offered, not, c.line)
		}
	}
}

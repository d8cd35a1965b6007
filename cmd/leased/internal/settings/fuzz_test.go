package settings_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// FuzzFile checks that a configuration that is accepted has the same meaning when it
// is printed and read again.
func FuzzFile(f *testing.F) {
	for _, text := range []string{"", "id: a\ndata: x\nbootstrap-expect: 1\n",
		"data: x\nbootstrap-expect: 1\npolicies:\n- {prefix: jobs/, mode: correctness, ttl: 10s}\n",
		"data: x\nbootstrap-expect: 1\nredis: [\"a:1\"]\nredis-nodes:\n- {address: \"a:1\", username: u}\n", "listen: {}\n",
		"a: &a [*a]\n", "data: x\ndata: y\n", "- 1\n", "join: [a, {b: c}]\n", "\xff"} {
		f.Add([]byte(text))
	}
	load := func(t *testing.T, data []byte) (*settings.Settings, error) {
		path := filepath.Join(t.TempDir(), "leased.yaml")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		settings.Flags(flags)
		return settings.Load(flags, func(string) (string, bool) { return "", false }, path)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := load(t, data)
		if err != nil {
			return
		}
		second, err := load(t, []byte(first.Print()))
		require.NoError(t, err, "%s", first.Print())
		require.Equal(t, first.Policies, second.Policies)
		require.Equal(t, []any{first.ID, first.Data, first.Listen, first.Join, first.Redis, first.Users},
			[]any{second.ID, second.Data, second.Listen, second.Join, second.Redis, second.Users})
	})
}

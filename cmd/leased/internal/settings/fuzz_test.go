package settings_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
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

// FuzzUsers checks that a file of users is read as a whole or refused, that users have
// different names and secrets, and that an error shows no secret of the file.
func FuzzUsers(f *testing.F) {
	path := filepath.Join(f.TempDir(), "users.yaml")
	_, err := settings.AddUser(path, auth.User{Name: "alice"})
	require.NoError(f, err)
	good, err := os.ReadFile(path)
	require.NoError(f, err)
	for _, text := range []string{"", "[]", "{}", string(good), string(good) + string(good), string(good) + "---\n" +
		string(good), "- name: a\n  hashes: [hunter2]\n",
		"- name: a\n  password: " + secret.New() + "\n", secret.New(), "- &a [*a]\n", "- {name: a, hashes: 1, name: b}\n",
		"\t", "- !!binary x\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "users.yaml")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		users, err := settings.ReadUsers(path)
		if err != nil {
			require.Nil(t, users)
			require.False(t, secret.In(err.Error()), "%v", err)
			return
		}
		names, hashes := map[string]bool{}, map[secret.Hash]bool{}
		for _, u := range users {
			_, err := settings.AddUser(filepath.Join(t.TempDir(), "fresh.yaml"), auth.User{Name: u.Name})
			require.NoError(t, err)
			require.False(t, names[u.Name])
			require.True(t, len(u.Hashes) > 0 || u.Certificate != "")
			names[u.Name] = true
			for _, hash := range u.Hashes {
				require.False(t, hashes[hash])
				hashes[hash] = true
			}
		}
	})
}

package userfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/userfile"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
)

// FuzzFile checks that a file of users is read as a whole or refused, that users have
// different names and secrets, and that an error shows no secret of the file.
func FuzzFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "users.yaml")
	_, err := userfile.Add(path, auth.User{Name: "alice"})
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
		users, err := userfile.Read(path)
		if err != nil {
			require.Nil(t, users)
			require.False(t, secret.In(err.Error()), "%v", err)
			return
		}
		names, hashes := map[string]bool{}, map[secret.Hash]bool{}
		for _, u := range users {
			require.NoError(t, userfile.CheckName(u.Name))
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

package userfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/userfile"
	"github.com/leased-project/leased/lease/remote/secret"
)

func TestUsersComeAndGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	first, err := userfile.Add(path, "alice", false)
	require.NoError(t, err)
	require.NoError(t, secret.Check(first))
	second, err := userfile.Add(path, "bob@example.org", false)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(text), first, "the secret itself is not kept")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	users, err := userfile.Read(path)
	require.NoError(t, err)
	require.Len(t, users, 2)
	require.Equal(t, "alice", users[0].Name)
	require.Equal(t, secret.HashOf(first), users[0].Hash)

	_, err = userfile.Add(path, "alice", false)
	require.ErrorIs(t, err, userfile.ErrInvalid)
	require.ErrorContains(t, err, "there is such a user")
	for _, name := range []string{"", "a b", "-x", "a\nb", strings.Repeat("x", 65), "ä"} {
		_, err = userfile.Add(path, name, false)
		require.ErrorIs(t, err, userfile.ErrInvalid, name)
	}
	require.NoError(t, userfile.Remove(path, "alice"))
	require.ErrorIs(t, userfile.Remove(path, "alice"), userfile.ErrInvalid)
	users, err = userfile.Read(path)
	require.NoError(t, err)
	require.Len(t, users, 1)

	// Two that change it at once do not undo each other's work.
	require.NoError(t, os.WriteFile(path+".new", nil, 0o600))
	_, err = userfile.Add(path, "carol", false)
	require.ErrorIs(t, err, userfile.ErrBusy)
	after, err := userfile.Read(path)
	require.NoError(t, err)
	require.Equal(t, users, after)
}

// A secret that has got where it does not belong is not repeated: as the file, as
// its name, as a name, a key or a value in it.
func TestSecretsAreNotRepeated(t *testing.T) {
	text := secret.New()
	for _, file := range []string{text + "\n", "- " + text + "\n", text + ": x\n", "- {" + text + ": x}\n", "- {name: " + text + "}\n",
		"- {name: " + text[:50] + ", hash: x}\n", "- {name: a, hash: " + text + "}\n", "- {name: a, member: " + text + "}\n",
		"- {name: [" + text + "]}\n", "- *" + text + "\n", "- {name: a, name: " + text + "}\n", "'" + text + "\n", "- \" " + text + "\"\n"} {
		path := filepath.Join(t.TempDir(), "users.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		_, err := userfile.Read(path)
		require.ErrorIs(t, err, userfile.ErrInvalid, file)
		require.NotContains(t, err.Error(), text[10:30], file)
		require.ErrorContains(t, err, "users.yaml", "it says where")
	}
	path := filepath.Join(t.TempDir(), "users.yaml")
	_, err := userfile.Read(text)
	require.ErrorIs(t, err, secret.ErrPath)
	_, err = userfile.Add(text, "alice", false)
	require.ErrorIs(t, err, secret.ErrPath)
	for _, name := range []string{text, text[:50], "leased_x", " " + text} {
		_, err = userfile.Add(path, name, false)
		require.ErrorIs(t, err, userfile.ErrInvalid)
		require.NotContains(t, err.Error(), name)
		err = userfile.Remove(path, name)
		require.ErrorIs(t, err, userfile.ErrInvalid)
		require.NotContains(t, err.Error(), name)
	}
}

// No user is lost unseen: not those of a second document, and not all of them
// because a file was emptied.
func TestNothingIsDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	_, err := userfile.Add(path, "alice", true)
	require.NoError(t, err)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, more := range []string{"---\n" + string(good), "---\n", "...\n---\n[]\n", "--- {\n"} {
		both := string(good) + more
		require.NoError(t, os.WriteFile(path, []byte(both), 0o600))
		_, err = userfile.Read(path)
		require.ErrorIs(t, err, userfile.ErrInvalid, more)
		_, err = userfile.Add(path, "bob", false)
		require.ErrorIs(t, err, userfile.ErrInvalid)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, both, string(after))
	}
	for _, nothing := range []string{"", "\n", "# nobody\n", "---\n"} {
		require.NoError(t, os.WriteFile(path, []byte(nothing), 0o600))
		_, err = userfile.Read(path)
		require.ErrorIs(t, err, userfile.ErrInvalid, nothing)
	}
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = userfile.Read(path)
	require.ErrorIs(t, err, userfile.ErrEmpty)
	_, err = userfile.Add(path, "alice", true)
	require.NoError(t, err, "a new file may be made empty")
	users, err := userfile.Read(path)
	require.NoError(t, err)
	require.True(t, users[0].Member)
	require.NoError(t, userfile.Remove(path, "alice"))
	users, err = userfile.Read(path)
	require.NoError(t, err, "the last one was removed on purpose")
	require.Empty(t, users)
}

// Weak forms are refused, by key, line and rule, and never repeated: they may be
// passwords.
func TestWeakFormsAreRefused(t *testing.T) {
	hash := "sha256:" + strings.Repeat("ab", 32)
	for file, want := range map[string]string{
		"alice: hunter2\n":                 "users (a map, from ",
		"hunter2\n":                        "users (one value, not shown, from ",
		"- hunter2\n":                      "must have an entry with name and hash",
		"- name: alice\n":                  "hash (of alice, empty, from ",
		"- {name: alice, hash: hunter2}\n": "hash (of alice, not shown, from ",
		"- {name: alice, hash: \"sha256:hunter2\"}\n":                                "must be sha256: and 64 hexadecimal digits",
		"- {name: alice, hash: \"md5:" + hash[7:] + "\"}":                            "passwords and other hashes are not taken",
		"- {name: alice, secret: hunter2}\n":                                         "secret (not shown, from ",
		"- {hash: \"" + hash + "\"}\n":                                               "name (empty, from ",
		"- {name: \"a b\", hash: \"" + hash + "\"}\n":                                "name (a b, from ",
		"- {name: a, hash: \"" + hash + "\"}\n- {name: a, hash: \"" + hash + "\"}\n": ":2) must be given once",
		"- {name: a, hash: \"" + hash + "\"}\n- {name: b, hash: \"" + hash + "\"}\n": "the same as that of a",
		"- {name: a, hash: [x]}\n":                                                   "hash (a list, from ",
		"- {name: a\n":                                                               "users.yaml",
	} {
		path := filepath.Join(t.TempDir(), "users.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		_, err := userfile.Read(path)
		require.ErrorIs(t, err, userfile.ErrInvalid, file)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
		_, err = userfile.Add(path, "carol", false)
		require.ErrorIs(t, err, userfile.ErrInvalid, "a bad file is not made worse")
		require.NoFileExists(t, path+".new")
	}
}

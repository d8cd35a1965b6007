package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
)

func TestAddAndRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	first, err := settings.AddUser(path, auth.User{Name: "alice"})
	require.NoError(t, err)
	require.NoError(t, secret.Check(first))
	second, err := settings.AddUser(path, auth.User{Name: "bob@example.org"})
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(text), first, "the file contains the secret")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	users, err := settings.ReadUsers(path)
	require.NoError(t, err)
	require.Len(t, users, 2)
	require.Equal(t, "alice", users[0].Name)
	require.Equal(t, []secret.Hash{secret.HashOf(first)}, users[0].Hashes)

	_, err = settings.AddUser(path, auth.User{Name: "alice"})
	require.ErrorIs(t, err, settings.ErrInvalid)
	require.ErrorContains(t, err, "already exists")
	for _, name := range []string{"", "a b", "-x", "a\nb", strings.Repeat("x", 65), "ä"} {
		_, err = settings.AddUser(path, auth.User{Name: name})
		require.ErrorIs(t, err, settings.ErrInvalid, name)
	}
	require.NoError(t, settings.RemoveUser(path, "alice"))
	require.ErrorIs(t, settings.RemoveUser(path, "alice"), settings.ErrInvalid)
	users, err = settings.ReadUsers(path)
	require.NoError(t, err)
	require.Len(t, users, 1)

	// Two that change it at once do not undo each other's work.
	require.NoError(t, os.WriteFile(path+".new", nil, 0o600))
	_, err = settings.AddUser(path, auth.User{Name: "carol"})
	require.ErrorIs(t, err, settings.ErrUsersBusy)
	after, err := settings.ReadUsers(path)
	require.NoError(t, err)
	require.Equal(t, users, after)
}

// Rules, certificates and member accounts are read as they were written, and rules can
// be added and removed.
func TestRulesInFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	rules := auth.Rules{{Right: auth.Acquire, Pattern: "jobs/*"}, {Right: auth.Read, Pattern: `a "quoted": name`},
		{Right: auth.Cluster}}
	text, err := settings.AddUser(path, auth.User{Name: "alice", Rules: rules})
	require.NoError(t, err)
	none, err := settings.AddUser(path, auth.User{Name: "bob", Certificate: "bob.example.org", Rules: auth.AdminRules()})
	require.NoError(t, err)
	require.Empty(t, none, "a user with a certificate has no secret")
	member, err := settings.AddUser(path, auth.User{Name: "members", Member: true})
	require.NoError(t, err)
	users, err := settings.ReadUsers(path)
	require.NoError(t, err)
	require.Equal(t, []auth.User{{Name: "alice", Hashes: []secret.Hash{secret.HashOf(text)}, Rules: rules},
		{Name: "bob", Certificate: "bob.example.org", Rules: auth.AdminRules()},
		{Name: "members", Hashes: []secret.Hash{secret.HashOf(member)}, Member: true}}, users)

	_, err = settings.AddUser(path, auth.User{Name: "carol", Certificate: "bob.example.org"})
	require.ErrorContains(t, err, "already identifies user bob")
	_, err = settings.AddUser(path, auth.User{Name: "carol", Certificate: "n1", Member: true})
	require.ErrorIs(t, err, settings.ErrInvalid, "members have a secret")

	more := auth.Rules{{Right: auth.Break, Pattern: "*"}, {Right: auth.Cluster}}
	require.NoError(t, settings.AllowUser(path, "alice", more))
	require.NoError(t, settings.DenyUser(path, "alice", rules[:1]))
	require.ErrorContains(t, settings.DenyUser(path, "alice", rules[:1]), "is not a rule of alice")
	require.ErrorContains(t, settings.AllowUser(path, "dave", more), "does not exist")
	users, err = settings.ReadUsers(path)
	require.NoError(t, err)
	require.Equal(t, auth.Rules{rules[1], rules[2], more[0]}, users[0].Rules)
	require.Equal(t, []secret.Hash{secret.HashOf(text)}, users[0].Hashes, "the secret stays")
}

// A user has several secrets while one replaces the other, and always one or a
// certificate.
func TestSecretsOfUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	first, err := settings.AddUser(path, auth.User{Name: "alice"})
	require.NoError(t, err)
	_, err = settings.AddUser(path, auth.User{Name: "bob", Certificate: "bob.example.org"})
	require.NoError(t, err)
	hashes := func(name int) []secret.Hash {
		users, err := settings.ReadUsers(path)
		require.NoError(t, err)
		return users[name].Hashes
	}
	const alice, bob = 0, 1
	second, err := settings.AddSecret(path, "alice")
	require.NoError(t, err)
	require.Equal(t, []secret.Hash{secret.HashOf(first), secret.HashOf(second)}, hashes(alice))
	for _, wrong := range []string{"", "0", second, settings.SecretID(secret.HashOf("x"))} {
		err = settings.RemoveSecret(path, "alice", wrong)
		require.ErrorContains(t, err, "is not the id of a secret of alice")
		require.False(t, secret.In(err.Error()))
	}
	require.NoError(t, settings.RemoveSecret(path, "alice", settings.SecretID(secret.HashOf(first))))
	require.Equal(t, []secret.Hash{secret.HashOf(second)}, hashes(alice))
	require.ErrorContains(t, settings.RemoveSecret(path, "alice", settings.SecretID(secret.HashOf(second))),
		"is the only secret of alice")

	text, err := settings.AddSecret(path, "bob")
	require.NoError(t, err, "a user may have a certificate and a secret")
	require.Equal(t, []secret.Hash{secret.HashOf(text)}, hashes(bob))
	require.NoError(t, settings.RemoveSecret(path, "bob", settings.SecretID(secret.HashOf(text))))
	require.Empty(t, hashes(bob))
	_, err = settings.AddSecret(path, "carol")
	require.ErrorContains(t, err, "does not exist")
}

// Errors do not repeat a secret that was given in the wrong place: as the path, as
// the content, or as a name, key or value in the file.
func TestSecretsAreNotRepeated(t *testing.T) {
	text := secret.New()
	for _, file := range []string{text + "\n", "- " + text + "\n", text + ": x\n", "- {" + text + ": x}\n", "- {name: " +
		text + "}\n",
		"- {name: " + text[:50] + ", hashes: [x]}\n", "- {name: a, hashes: [" + text + "]}\n", "- {name: a, member: " + text +
			"}\n",
		"- {name: [" + text + "]}\n", "- *" + text + "\n", "- {name: a, name: " + text + "}\n", "'" + text + "\n", "- \" " +
			text + "\"\n"} {
		path := filepath.Join(t.TempDir(), "users.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		_, err := settings.ReadUsers(path)
		require.ErrorIs(t, err, settings.ErrInvalid, file)
		require.NotContains(t, err.Error(), text[10:30], file)
		require.ErrorContains(t, err, "users.yaml", "the error names the file")
	}
	path := filepath.Join(t.TempDir(), "users.yaml")
	_, err := settings.ReadUsers(text)
	require.ErrorIs(t, err, secret.ErrPath)
	_, err = settings.AddUser(text, auth.User{Name: "alice"})
	require.ErrorIs(t, err, secret.ErrPath)
	for _, name := range []string{text, text[:50], "leased_x", " " + text} {
		_, err = settings.AddUser(path, auth.User{Name: name})
		require.ErrorIs(t, err, settings.ErrInvalid)
		require.NotContains(t, err.Error(), name)
		err = settings.RemoveUser(path, name)
		require.ErrorIs(t, err, settings.ErrInvalid)
		require.NotContains(t, err.Error(), name)
	}
}

// A second document and an emptied file are errors, so no user is lost
// silently.
func TestSecondDocumentAndEmptyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.yaml")
	_, err := settings.AddUser(path, auth.User{Name: "alice", Member: true})
	require.NoError(t, err)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, more := range []string{"---\n" + string(good), "---\n", "...\n---\n[]\n", "--- {\n"} {
		both := string(good) + more
		require.NoError(t, os.WriteFile(path, []byte(both), 0o600))
		_, err = settings.ReadUsers(path)
		require.ErrorIs(t, err, settings.ErrInvalid, more)
		_, err = settings.AddUser(path, auth.User{Name: "bob"})
		require.ErrorIs(t, err, settings.ErrInvalid)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, both, string(after))
	}
	for _, nothing := range []string{"", "\n", "# nobody\n", "---\n"} {
		require.NoError(t, os.WriteFile(path, []byte(nothing), 0o600))
		_, err = settings.ReadUsers(path)
		require.ErrorIs(t, err, settings.ErrInvalid, nothing)
	}
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = settings.ReadUsers(path)
	require.ErrorIs(t, err, settings.ErrNoUsers)
	_, err = settings.AddUser(path, auth.User{Name: "alice", Member: true})
	require.NoError(t, err, "an empty new file may exist")
	users, err := settings.ReadUsers(path)
	require.NoError(t, err)
	require.True(t, users[0].Member)
	require.NoError(t, settings.RemoveUser(path, "alice"))
	users, err = settings.ReadUsers(path)
	require.NoError(t, err, "Remove may leave an empty list")
	require.Empty(t, users)
}

// Errors name the key, the line and the rule, but not the value: it may be a
// password.
func TestInvalidFiles(t *testing.T) {
	hash := "sha256:" + strings.Repeat("ab", 32)
	for file, want := range map[string]string{
		"alice: hunter2\n":                     "users (a map, from ",
		"hunter2\n":                            "users (a single value, not shown, from ",
		"- hunter2\n":                          "must be a map with name and hashes",
		"- name: alice\n":                      "hashes (of alice, empty, from ",
		"- {name: alice, hashes: [hunter2]}\n": "hashes (of alice, not shown, from ",
		"- {name: alice, hashes: [\"sha256:hunter2\"]}\n": "must be sha256: and 64 hexadecimal digits",
		"- {name: alice, hashes: [\"md5:" + hash[7:] + "\"]}": "passwords and other hashes " +
			"are not accepted",
		"- {name: alice, secret: hunter2}\n":                                                 "secret (not shown, from ",
		"- {hashes: [\"" + hash + "\"]}\n":                                                   "name (empty, from ",
		"- {name: \"a b\", hashes: [\"" + hash + "\"]}\n":                                    "name (a b, from ",
		"- {name: a, hashes: [\"" + hash + "\"]}\n- {name: a, hashes: [\"" + hash + "\"]}\n": ":2) is given twice",
		"- {name: a, hashes: [\"" + hash + "\"]}\n- {name: b, hashes: [\"" + hash +
			"\"]}\n": "must differ from the hashes of a",
		"- {name: a, hashes: [\"" + hash + "\", \"" + hash + "\"]}\n":          "is listed once",
		"- {name: a, certificate: x, member: true}\n":                          "that is no member account",
		"- {name: a, certificate: x}\n- {name: b, certificate: x}":             "must differ from the certificate of a",
		"- {name: a, certificate: \"\"}\n":                                     "1 to 64 printable characters",
		"- {name: a, hashes: [\"" + hash + "\"], allow: \"read:*\"}":           "must be a list of rules",
		"- {name: a, hashes: [\"" + hash + "\"], allow: [[]]}":                 "must be a list of rules",
		"- {name: a, hashes: [\"" + hash + "\"], allow: [\"write:*\"]}":        "there is no right \"write\"",
		"- {name: a, hashes: [\"" + hash + "\"], allow: [\"leased_hunter2\"]}": "not shown",
		"- {name: a, hashes: x}\n":                                             "must be a list of hashes",
		"- {name: a\n":                                                         "users.yaml",
	} {
		path := filepath.Join(t.TempDir(), "users.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		_, err := settings.ReadUsers(path)
		require.ErrorIs(t, err, settings.ErrInvalid, file)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
		_, err = settings.AddUser(path, auth.User{Name: "carol"})
		require.ErrorIs(t, err, settings.ErrInvalid, "Add must not change an invalid file")
		require.NoFileExists(t, path+".new")
	}
}

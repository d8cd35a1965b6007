package member

import (
	"crypto/ed25519"
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/internal/logtest"
	"github.com/leased-project/leased/internal/server/auth"
)

// A reload has one line for each user, certificate and key that has changed, and none if
// nothing has. No line contains a secret.
func TestReloadLogsChangesOnce(t *testing.T) {
	folder := t.TempDir()
	users, key := filepath.Join(folder, "users.yaml"), filepath.Join(folder, "signing.key")
	var secrets []string
	add := func(name, rule string) {
		parsed, err := auth.ParseRule(rule)
		require.NoError(t, err)
		text, err := settings.AddUser(users, auth.User{Name: name, Rules: auth.Rules{parsed}})
		require.NoError(t, err)
		secrets = append(secrets, text)
	}
	newKey := func() string {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		signer, err := signature.NewSigner(private)
		require.NoError(t, err)
		text, err := signature.MarshalSigner(signer)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(key, text, 0o600))
		return signer.KeyID()
	}
	add("ann", "read:*")
	add("bob", "read:*")
	oldKey := newKey()
	cert, certKey := selfSigned(t, folder, "one", "one")
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	settings.Flags(flags)
	require.NoError(t, flags.Parse([]string{"--id=one", "--data=" + filepath.Join(folder, "data"), "--listen=127.0.0.1:0",
		"--raft-listen=127.0.0.1:0",
		"--bootstrap-expect=1", "--users=" + users, "--signing-key-file=" + key, "--tls-cert=" + cert, "--tls-key=" + certKey,
		"--tls-ca=" + cert}))
	s, err := settings.Load(flags, func(string) (string, bool) { return "", false }, "")
	require.NoError(t, err)
	log := logtest.New(slog.LevelDebug)
	m, err := Start(testContext(t), s, "test", log.Logger())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Stop()) })
	log.Once(t, "loaded the users")
	log.Once(t, "certificate loaded")
	require.Equal(t, oldKey, log.Once(t, "signing tokens").Values["key"])

	require.NoError(t, m.Reload(s))
	for _, message := range []string{"user added", "user changed", "user removed"} {
		require.Zero(t, log.Count(message))
	}
	log.Once(t, "certificate loaded")
	log.Once(t, "signing tokens")

	add("eve", "read:jobs/*")
	require.NoError(t, settings.RemoveUser(users, "ann"))
	rule, err := auth.ParseRule("acquire:jobs/*")
	require.NoError(t, err)
	require.NoError(t, settings.AllowUser(users, "bob", auth.Rules{rule}))
	fresh := newKey()
	selfSigned(t, folder, "one", "one")
	require.NoError(t, m.Reload(s))
	require.NoError(t, m.Reload(s))
	added := log.Once(t, "user added")
	require.Equal(t, "eve", added.Values["user"])
	require.Equal(t, "one", added.Values["id"])
	require.Contains(t, added.Values["rights"], "read:jobs/*")
	require.Equal(t, "ann", log.Once(t, "user removed").Values["user"])
	changed := log.Once(t, "user changed")
	require.Equal(t, "bob", changed.Values["user"])
	require.Contains(t, changed.Values["rights"], "acquire:jobs/*")
	require.Len(t, log.Lines("certificate loaded"), 2)
	keys := log.Lines("signing tokens")
	require.Len(t, keys, 2)
	require.Equal(t, fresh, keys[1].Values["key"])
	require.Equal(t, oldKey, keys[1].Values["former"])
	for _, line := range log.Lines("") {
		for _, secret := range secrets {
			require.False(t, strings.Contains(line.String(), secret), "a secret in the log")
		}
	}
}

package settings_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// A password is sent unencrypted only to loopback, unless redis-insecure is set. The
// rejected connection is not dialed: 192.0.2.1 would hang.
func TestUnencryptedPassword(t *testing.T) {
	for name, test := range map[string]struct {
		address string
		access  settings.RedisAccess
		refused bool
	}{
		"loopback":              {"127.0.0.1:6379", settings.RedisAccess{Password: "p"}, false},
		"loopback by name":      {"localhost:6379", settings.RedisAccess{Password: "p"}, false},
		"another host":          {"192.0.2.1:6379", settings.RedisAccess{Password: "p"}, true},
		"another host, TLS":     {"192.0.2.1:6379", settings.RedisAccess{Password: "p", TLS: true}, false},
		"another host, allowed": {"192.0.2.1:6379", settings.RedisAccess{Password: "p", Insecure: true}, false},
		"no password":           {"192.0.2.1:6379", settings.RedisAccess{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := &settings.RedisNodes{RedisAccess: test.access}
			err := nodes.Check([]string{test.address})
			if !test.refused {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, settings.ErrRedis)
			require.ErrorContains(t, err, "redis-tls")
			require.ErrorContains(t, err, "redis-insecure")

			client := redis.NewClient(nodes.Options(test.address))
			defer client.Close()
			require.ErrorContains(t, client.Ping(context.Background()).Err(), "the password would be sent unencrypted to "+
				"Redis node 192.0.2.1:6379")
		})
	}
}

// A name that resolves to another host is rejected when it is dialed.
func TestNameIsResolvedAgain(t *testing.T) {
	nodes := &settings.RedisNodes{RedisAccess: settings.RedisAccess{Password: "p"}}
	options := nodes.Options("127.0.0.1:6379")
	_, err := options.Dialer(t.Context(), "tcp", "192.0.2.1:6379")
	require.ErrorIs(t, err, settings.ErrRedis)
}

// The options of a single node replace those of all nodes, and nothing else.
func TestExceptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("hunter2\n"), 0o600))
	nodes := &settings.RedisNodes{RedisAccess: settings.RedisAccess{User: "leased", Password: "general", TLS: true,
		Insecure: true}}
	require.Empty(t, nodes.Except("b:1", "password-file", file))
	require.Empty(t, nodes.Except("b:1", "tls", "false"))
	require.Contains(t, nodes.Except("b:1", "passwd", file), "is not an option of a node")
	require.Equal(t, "must be true or false", nodes.Except("b:1", "tls", "maybe"))
	require.NoError(t, nodes.Check([]string{"a:1"}))

	general, own := nodes.Options("a:1"), nodes.Options("b:1")
	require.Equal(t, "general", general.Password)
	require.Equal(t, "a", general.TLSConfig.ServerName)
	require.Equal(t, "leased", own.Username)
	require.Equal(t, "hunter2", own.Password)
	require.Nil(t, own.TLSConfig)
}

// The error for conflicting settings names both.
func TestRulesNameBothSettings(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for want, access := range map[string]settings.RedisAccess{
		"redis-password-file and LEASED_REDIS_PASSWORD cannot be combined":           {PasswordFile: "f", Password: "p"},
		"redis-user must be given together with redis-password-file":                 {User: "u"},
		"redis-tls-cert must be given together with redis-tls-key":                   {TLS: true, Cert: "c"},
		"redis-tls-key must be given together with redis-tls-cert":                   {TLS: true, Key: "k"},
		"redis-tls-ca needs redis-tls (false) to be true":                            {CA: "c"},
		"redis-tls-cert needs redis-tls (false) to be true":                          {Cert: "c", Key: "k"},
		"read redis-password-file: open no-such-file":                                {PasswordFile: "no-such-file"},
		"read redis-tls-ca (no-such-file): open no-such-file":                        {TLS: true, CA: "no-such-file"},
		"redis-tls-ca (" + empty + ") contains no PEM certificate":                   {TLS: true, CA: empty},
		"redis-password-file (" + empty + ") is empty; it must contain the password": {PasswordFile: empty},
	} {
		_, err := access.Options("127.0.0.1:1")
		require.ErrorIs(t, err, settings.ErrRedis, want)
		require.ErrorContains(t, err, want)
	}
}

// A variable without a value says nothing: that is how files of Compose pass on a variable that may be unset.
func TestEmptyVariablesOfCommands(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings.RedisFlags(flags)
	_, err := settings.LoadRedis(flags, func(string) (string, bool) { return "", true })
	require.NoError(t, err)
	_, err = settings.LoadRedis(flags, func(name string) (string, bool) { return "perhaps", name == "LEASED_REDIS_TLS" })
	require.ErrorContains(t, err, "LEASED_REDIS_TLS")
}

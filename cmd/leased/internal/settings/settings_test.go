package settings_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/lease"
)

func load(t *testing.T, file string, env map[string]string, args ...string) (*settings.Settings, error) {
	t.Helper()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	settings.Flags(flags)
	require.NoError(t, flags.Parse(args))
	path := ""
	if file != "" {
		path = filepath.Join(t.TempDir(), "leased.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	}
	return settings.Load(flags, func(name string) (string, bool) { v, ok := env[name]; return v, ok }, path)
}

var least = []string{"--data=d", "--bootstrap-expect=1"}

func TestPrecedence(t *testing.T) {
	file := "id: of-file\ndata: d\nbootstrap-expect: 1\nheartbeat-timeout: 2s\nredis: [a:1, b:2, c:3]\n"
	env := map[string]string{"LEASED_ID": "of-env", "LEASED_HEARTBEAT_TIMEOUT": "3s"}
	s, err := load(t, file, env, "--id=of-flag")
	require.NoError(t, err)
	require.Equal(t, "of-flag", s.ID)
	require.Equal(t, 3*time.Second, s.Heartbeat)
	require.Equal(t, []string{"a:1", "b:2", "c:3"}, s.Redis)
	require.Equal(t, "127.0.0.1:7420", s.Listen)
}

// Print returns a file with the same settings.
func TestPrintRoundTrips(t *testing.T) {
	file := "policies:\n  - {prefix: report/, mode: efficiency, ttl: 5s}\n  - {prefix: \"\", mode: correctness, " +
		"lock-delay: 1s}\n" +
		"redis-nodes:\n  y:2: {user: other, password-file: y.password, tls: false}\n"
	first, err := load(t, file, nil, append(least, "--join=127.0.0.1:1", "--id=a", "--redis=x:1,y:2,z:3",
		"--log-level=warn",
		"--redis-user=leased", "--redis-password-file=p", "--redis-tls", "--redis-insecure")...)
	require.NoError(t, err)
	second, err := load(t, first.Print(), nil)
	require.NoError(t, err, first.Print())
	require.Equal(t, []lease.Policy{{Prefix: "report/", Mode: lease.Efficiency, TTL: 5 * time.Second},
		{Mode: lease.Correctness, LockDelay: time.Second}}, second.Policies)
	require.Equal(t, first.Redis, second.Redis)
	require.Equal(t, first.RedisNodes.RedisAccess, second.RedisNodes.RedisAccess)
	require.Equal(t, settings.RedisAccess{User: "other", PasswordFile: "y.password", Insecure: true},
		second.RedisNodes.At("y:2"))
	require.Equal(t, first.LogLevel, second.LogLevel)
	require.Equal(t, first.Join, second.Join)
	require.Contains(t, first.Print(), "redis: [\"x:1\", \"y:2\", \"z:3\"] # --redis\n")
}

// A secret in place of a path is rejected and not repeated.
func TestSecretIsNotRepeated(t *testing.T) {
	text := secret.New()
	for _, args := range [][]string{{"--secret-file=" + text}, {"--users=" + text}, {"--id=" + text}} {
		_, err := load(t, "", nil, append(args, least...)...)
		require.ErrorContains(t, err, "must not be a secret")
		require.NotContains(t, err.Error(), text[10:])
	}
	for _, file := range []string{"secret: " + text + "\n", text + ": x\n", text + "\n", "secret-file: " + text + "\n"} {
		_, err := load(t, file, nil, least...)
		require.ErrorIs(t, err, settings.ErrInvalid)
		require.NotContains(t, err.Error(), text[10:])
	}
}

// The probes need no TLS on an address that other machines can reach.
func TestProbesListenAnywhere(t *testing.T) {
	s, err := load(t, "", nil, append([]string{"--probe-listen=0.0.0.0:7422"}, least...)...)
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0:7422", s.ProbeListen)
}

func TestErrorsNameKeyValueAndRule(t *testing.T) {
	for want, args := range map[string][]string{
		"data (empty, from default) is required":                           {"--bootstrap-expect=1"},
		"bootstrap-expect (0, from default) must be 1 for a single member": {"--data=d"},
		"bootstrap-expect (3, from --bootstrap-expect) must be the number of addresses": {"--data=d",
			"--bootstrap-expect=3"},
		"limit-ttl-min (1h, from --limit-ttl-min) must be at most limit-ttl-max (1m0s)": {"--data=d",
			"--bootstrap-expect=1", "--limit-ttl-min=1h", "--limit-ttl-max=1m"},
		"limit-ttl-max (48h, from --limit-ttl-max) must be at most 24h0m0s": {"--data=d",
			"--bootstrap-expect=1", "--limit-ttl-max=48h"},
		"limit-name-bytes (513, from --limit-name-bytes) must be a number from 1 to 512": {"--data=d",
			"--bootstrap-expect=1", "--limit-name-bytes=513"},
		"bootstrap-expect (2, from --bootstrap-expect) must not be 2": {"--data=d",
			"--bootstrap-expect=2"},
		"listen (0.0.0.0:7420, from --listen) must be a loopback address": append(least,
			"--listen=0.0.0.0:7420"),
		"listen (:7420, from --listen) must be a loopback address": append(least,
			"--listen=:7420"),
		"raft-listen (10.1.1.1:1, from --raft-listen) must be a loopback": append(least,
			"--raft-listen=10.1.1.1:1"),
		"probe-listen (7422, from --probe-listen) must be HOST:PORT": append(least,
			"--probe-listen=7422"),
		"listen (7420, from --listen) must be HOST:PORT": append(least,
			"--listen=7420"),
		"redis (a:1,b:2, from --redis) is not a valid fleet: 2 Redis nodes: use an odd": append(least,
			"--redis=a:1,b:2"),
		"redis (a:1,a:1,b:1, from --redis) is not a valid fleet: Redis node a:1 is listed": append(least,
			"--redis=a:1,a:1,b:1"),
		"redis-user (u, from --redis-user) must be given together with redis-password": append(least,
			"--redis-user=u"),
		"redis-tls-ca (c, from --redis-tls-ca) needs redis-tls (false) to be true": append(least,
			"--redis-tls-ca=c"),
		"tls-cert (c, from --tls-cert) must be given together with tls-key (empty)": append(least,
			"--tls-cert=c"),
		"heartbeat-timeout (soon, from --heartbeat-timeout) must be a duration": append(least,
			"--heartbeat-timeout=soon"),
		"heartbeat-timeout (1ms, from --heartbeat-timeout) must be at least 5ms": append(least,
			"--heartbeat-timeout=1ms"),
		"log-store (disk, from --log-store) must be wal or bolt": append(least,
			"--log-store=disk"),
		"log-level (loud, from --log-level) must be debug": append(least,
			"--log-level=loud"),
		"join (x, from --join) must be HOST:PORT, such as 127.0.0.1:7420; this address is not: x": append(least,
			"--join=x"),
		"redis (x, from --redis) must be HOST:PORT, such as 127.0.0.1:6379; this address is not: x": append(least,
			"--redis=x"),
		"secret-file (empty, from default) is required with users (u) and join": append(least,
			"--users=u", "--join=127.0.0.1:1"),
		"tls-ca (empty, from default) is required with tls-cert (c): members verify each": append(least,
			"--tls-cert=c", "--tls-key=k"),
	} {
		_, err := load(t, "", nil, args...)
		require.ErrorIs(t, err, settings.ErrInvalid, want)
		require.ErrorContains(t, err, want)
	}
	_, err := load(t, "", map[string]string{"LEASED_REDIS_PASSWORD": "hunter2"},
		append(least, "--redis-password-file=f")...)
	require.ErrorContains(t, err, "redis-password-file (f, from --redis-password-file) and LEASED_REDIS_PASSWORD "+
		"cannot be combined")
	require.NotContains(t, err.Error(), "hunter2")
	_, err = load(t, "", map[string]string{"LEASED_BOOTSTRAP_EXPECT": "many"}, "--data=d")
	require.ErrorContains(t, err, "bootstrap-expect (many, from LEASED_BOOTSTRAP_EXPECT) must be a number from 0 to 9")
}

func TestFileErrorsNameTheLine(t *testing.T) {
	for file, want := range map[string]string{
		"data: d\nlissten: x\n":                                    "leased.yaml:2) is not a setting",
		"data: [d]\n":                                              "leased.yaml:1) must be a single value",
		"data: d\nid: a\nredis: {a: b}\n":                          "leased.yaml:3) must be a list",
		"policies: [{prefix: x, mode: fast}]\n":                    "policies: mode (fast, from ",
		"policies: [{prefix: x, mode: correctness, ttl: 1ms}]\n":   "policy for \"x\": ttl (1ms) must be from 10ms",
		"policies: [{prefix: x, mode: correctness, tll: 10s}]\n":   "policies: tll (10s, from ",
		"policies: [{prefix: x, mode: correctness, ttl: later}]\n": "policies: ttl (later, from ",
		"redis-nodes: {a: {user: u}}\n":                            "redis-nodes (a, from ",
		"redis-nodes: [a:1]\n":                                     "redis-nodes (a list, from ",
		"redis-nodes:\n  a:1: {pass: x}\n": "leased.yaml:2) is not an option of a node; the " +
			"options are user",
		"redis-nodes:\n  a:1: {tls: maybe}\n": "redis-nodes: a:1: tls (maybe, from ",
		"redis-nodes:\n  a:1:\n    user: u\n": "redis-nodes: a:1: user (combined with the settings " +
			"of all nodes, from ",
		"data: d\n  id: a": "leased.yaml",
	} {
		_, err := load(t, file, nil, least...)
		require.ErrorIs(t, err, settings.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
}

// Errors of the file name the key, value, line and rule, but no Go types.
func TestFileErrors(t *testing.T) {
	policies := "data: d\nbootstrap-expect: 1\npolicies:\n"
	for want, file := range map[string]string{
		"config (a list, from ":              "- a\n",
		"must be a map of settings":          "- a\n",
		"listen (a map, from ":               "listen: {a: b}\n",
		"yaml:3) is given twice":             "data: d\nbootstrap-expect: 1\ndata: e\n",
		"policies (5, from ":                 "policies: 5\n",
		"must be a list of policies":         "policies: 5\n",
		"policies: tttl (5s, from ":          policies + "  - {prefix: a, mode: efficiency, tttl: 5s}\n",
		"yaml:6) is not a field of a policy": policies + "  - prefix: a\n    mode: efficiency\n    tttl: 5s\n",
		"policies: mode (x, from ":           policies + "  - {prefix: a, mode: x}\n",
		"policies: mode (empty, from ":       policies + "  - {prefix: a}\n",
		"policies: ttl (soon, from ":         policies + "  - {prefix: a, mode: efficiency, ttl: soon}\n",
		`two policies for the prefix "a"`: policies + "  - {prefix: a, mode: efficiency}\n  - {prefix: a, mode: " +
			"correctness}\n",
		"redis-max-ttl (1m0s, from default)": policies + "  - {prefix: a, mode: efficiency, ttl: 5m}\n",
		"redis-max-ttl (5s, from ":           "redis-max-ttl: 5s\n" + policies + "  - {prefix: a, mode: efficiency}\n",
		"listen (127.0.0.1:99999, from ":     "data: d\nbootstrap-expect: 1\nlisten: 127.0.0.1:99999\n",
		"must have a port from 0 to 65535":   "data: d\nbootstrap-expect: 1\nlisten: 127.0.0.1:99999\n",
		"must be a single document":          "data: d\nbootstrap-expect: 1\n---\nusers: users.yaml\n",
	} {
		_, err := load(t, file, nil)
		require.ErrorIs(t, err, settings.ErrInvalid, file)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "settings.")
	}
}

// A password is not sent unencrypted to another host unless redis-insecure is set,
// and never printed.
func TestUnencryptedRedisPassword(t *testing.T) {
	env := map[string]string{"LEASED_REDIS_PASSWORD": "hunter2"}
	far := append(least, "--redis=192.0.2.1:6379")
	_, err := load(t, "", env, far...)
	require.ErrorIs(t, err, settings.ErrInvalid)
	require.ErrorContains(t, err, "redis (192.0.2.1:6379, from --redis) the password would be sent unencrypted to "+
		"Redis node 192.0.2.1:6379")
	for _, flag := range []string{"--redis-insecure", "--redis-tls"} {
		s, err := load(t, "", env, append(far, flag)...)
		require.NoError(t, err)
		require.Equal(t, "hunter2", s.RedisNodes.Options("192.0.2.1:6379").Password)
		require.NotContains(t, s.Print(), "hunter2")
	}
	_, err = load(t, "redis-nodes:\n  192.0.2.1:6379: {tls: true}\n", env, far...)
	require.NoError(t, err)
	_, err = load(t, "", env, append(least, "--redis=127.0.0.1:6379")...)
	require.NoError(t, err)
}

// The limits have the defaults of the server, and are printed and read again.
func TestLimits(t *testing.T) {
	s, err := load(t, "", nil, least...)
	require.NoError(t, err)
	require.Equal(t, limits.Default(), s.Limits)
	s, err = load(t, s.Print(), map[string]string{"LEASED_LIMIT_LEASES_PER_USER": "7"}, "--limit-ttl-max=1h")
	require.NoError(t, err)
	require.Equal(t, 7, s.Limits.Cluster.LeasesPerUser)
	require.Contains(t, s.Print(), "limit-leases-per-user: 7 # LEASED_LIMIT_LEASES_PER_USER\n")
	require.Contains(t, s.Print(), "limit-ttl-max: \"1h\" # --limit-ttl-max\n")
	_, err = load(t, "data: d\nbootstrap-expect: 1\nlimit-ttl-max: 10s\npolicies:\n- {prefix: jobs/, mode: "+
		"correctness, ttl: 1m}\n", nil)
	require.ErrorContains(t, err, `must be at least the ttl (1m0s) of the policy for "jobs/"`)
}

//go:build unix

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// startSecureRedis starts nodes that require TLS with client certificates, and an ACL
// user with the permissions in docs/CONFIGURATION.md. It returns their TLS addresses.
func startSecureRedis(t *testing.T, a *authority, n int) (addresses []string) {
	t.Helper()
	permissions := aclOf(t)
	file := func(name string) string { return filepath.Join(a.dir, name) }
	for range n {
		_, port, err := net.SplitHostPort(testserver.FreeAddr(t))
		require.NoError(t, err)
		node := testserver.Redis(t, testserver.RedisConfig("tls-port", port),
			testserver.RedisConfig("tls-cert-file", file("node.pem")),
			testserver.RedisConfig("tls-key-file", file("node.key")), testserver.RedisConfig("tls-ca-cert-file", file("ca.pem")),
			testserver.RedisConfig("tls-auth-clients", "yes"))
		admin := redis.NewClient(&redis.Options{Addr: node.Addr})
		setUser := []any{"ACL", "SETUSER", "leased", "on", ">hunter2"}
		for _, permission := range permissions {
			setUser = append(setUser, permission)
		}
		require.NoError(t, admin.Do(t.Context(), setUser...).Err())
		require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", "off").Err())
		require.NoError(t, admin.Close())
		addresses = append(addresses, "127.0.0.1:"+port)
	}
	return addresses
}

// aclOf reads the permissions of the ACL user from the document.
func aclOf(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/CONFIGURATION.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "ACL SETUSER leased on '>PASSWORD' ")
	require.True(t, found)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(strings.ReplaceAll(line, "'", ""))
}

// The service and its clients connect to Redis with TLS, a certificate, an ACL user
// and a password from a file or the environment. Clients without them use the
// service.
func TestRedisWithTLSAndUser(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("node", "127.0.0.1")
	a.issue("member", "127.0.0.1")
	addresses := startSecureRedis(t, a, 3)
	password := filepath.Join(a.dir, "password")
	require.NoError(t, os.WriteFile(password, []byte("hunter2\n"), 0o600))
	file := filepath.Join(a.dir, "leased.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "redis: [%s]\nredis-max-ttl: 10s\nredis-user: "+
		"leased\nredis-tls: true\nredis-tls-ca: %[2]s/ca.pem\n"+
		"redis-tls-cert: %[2]s/member.pem\nredis-tls-key: %[2]s/member.key\nredis-password-file: %[3]s\n"+
		"redis-nodes:\n  %[4]s: {password-file: %[3]s.other}\npolicies:\n  - {prefix: report/, mode: efficiency}\n",
		strings.Join(addresses, ", "), a.dir, password, addresses[0]), 0o600))

	api := testserver.FreeAddr(t)
	serve := []string{leased, "serve", "--config=" + file, "--id=one", "--data=" + t.TempDir() + "/one", "--listen=" + api,
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1"}
	out, code := call(t, nil, serve...)
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "read redis-password-file: open "+password+".other",
		"the option of the single node was not used")
	require.NoError(t, os.WriteFile(password+".other", []byte("hunter2\n"), 0o600))
	p := start(t, nil, serve...)
	healthy(t, api)
	env := endpoint(api)
	awaitVotes(t, env, 3)
	take(t, api, "report/1")

	secure := append(env, "LEASED_REDIS_USER=leased", "LEASED_REDIS_PASSWORD=hunter2", "LEASED_REDIS_TLS=true",
		"LEASED_REDIS_TLS_CA="+a.dir+"/ca.pem",
		"LEASED_REDIS_TLS_CERT="+a.dir+"/member.pem", "LEASED_REDIS_TLS_KEY="+a.dir+"/member.key")
	var direct string
	alone := regexp.MustCompile(`^token \d+, password unset\n$`)
	eventually(t, func() bool { // the client warns if the nodes are slow, and uses the service
		direct = must(t, secure, leased, "run", "report/1", "--", "sh", "-c",
			`echo "token $LEASED_TOKEN, password ${LEASED_REDIS_PASSWORD-unset}"`)
		require.NotContains(t, direct, "hunter2")
		return alone.MatchString(direct)
	}, "for a token from the nodes; the command printed:\n%s", lazy(func() string { return direct }))
	through := must(t, env, leased, "run", "report/1", "--", "sh", "-c", `echo "token $LEASED_TOKEN"`)
	require.Regexp(t, `(?m)^token \d+$`, through)
	require.Contains(t, through, "Redis", "the client does not report that it uses the service")
	for _, text := range []string{p.output.String(), through, must(t, nil, leased, "serve", "--config="+file,
		"--data=x", "--bootstrap-expect=1", "--print-config")} {
		require.NotContains(t, text, "hunter2")
	}
}

// Members and clients do not send a password unencrypted to another host, even if it
// joins the fleet later. They do not connect to it at all.
func TestPasswordIsNotSentUnencrypted(t *testing.T) {
	t.Parallel()
	const far = "192.0.2.1:6379" // a connection to this address would hang
	env := []string{"LEASED_REDIS_PASSWORD=hunter2"}
	for _, args := range [][]string{
		{"serve", "--data=" + t.TempDir(), "--bootstrap-expect=1", "--redis=" + far},
		{"redis", "init", "--redis=" + far, "--floor=0"},
	} {
		out, code := call(t, env, append([]string{leased}, args...)...)
		require.Equal(t, 2, code, out)
		require.Contains(t, out, "the password would be sent unencrypted to Redis node "+far)
		require.Contains(t, out, "redis-insecure")
		require.NotContains(t, out, "hunter2")
	}
	must(t, env, leased, "serve", "--data=d", "--bootstrap-expect=1", "--redis="+far, "--redis-insecure", "--print-config")

	api := testserver.FreeAddr(t)
	start(t, env, leased, "serve", "--id=one", "--data="+t.TempDir()+"/one", "--listen="+api, "--raft-listen=127.0.0.1:0",
		"--bootstrap-expect=1")
	healthy(t, api)
	out, code := call(t, endpoint(api), leased, "redis", "fleet", "set", far)
	require.Equal(t, 122, code, out)
	require.Contains(t, out, "the password would be sent unencrypted to Redis node "+far)
	must(t, endpoint(api), leased, "redis", "fleet", "set", far, "--no-wait", "--force")
	eventually(t, func() bool {
		return strings.Contains(must(t, endpoint(api), leased, "redis", "status"),
			"the password would be sent unencrypted to Redis node "+far)
	}, "for the reason in the status")
}

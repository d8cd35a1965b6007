package redlockadapter_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// fakeTime returns the libraries to preload in order to shift a server's clock. With
// the C library in front the server uses its allocator: libfaketime and jemalloc call
// each other recursively.
func fakeTime(t *testing.T) string {
	t.Helper()
	library, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	require.NotEmpty(t, library, "install libfaketime (Debian: apt-get install faketime)")
	libc, _ := filepath.Glob("/lib/*/libc.so.6")
	require.NotEmpty(t, libc)
	return library[0] + ":" + libc[0]
}

// New refuses a server that could lose votes. The error says what to change.
func TestUnusableServersAreRefused(t *testing.T) {
	t.Parallel()
	plain := testserver.Redis(t)
	host, port, err := net.SplitHostPort(plain.Addr)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		options []testserver.RedisOption
		prepare func(f *fleet)
		says    string
	}{
		"replica": {options: []testserver.RedisOption{testserver.RedisConfig("replicaof", host, port)},
			says: "it is a replica of"},
		"has replicas": {prepare: func(f *fleet) {
			h, p, _ := net.SplitHostPort(f.servers[0].Addr)
			testserver.Redis(t, testserver.RedisConfig("replicaof", h, p))
			waitFor(t, func() bool { return infoField(t, f.client(t, 0), "connected_slaves") == "1" })
		}, says: "it has 1 replicas"},
		"cluster": {options: []testserver.RedisOption{testserver.RedisClusterMode()}, says: "cluster mode"},
		"eviction": {options: []testserver.RedisOption{testserver.RedisConfig("maxmemory-policy", "allkeys-lru")},
			says: "set it to noeviction"},
		"clock": {options: []testserver.RedisOption{testserver.RedisEnv("LD_PRELOAD", fakeTime(t)),
			testserver.RedisEnv("FAKETIME", "+1h"),
			testserver.RedisEnv("FAKETIME_DONT_FAKE_MONOTONIC", "1")}, says: "clock is off by"},
		"even number": {prepare: func(f *fleet) {
			f.config.Nodes = append(f.config.Nodes, &redis.Options{Addr: plain.Addr})
		}, says: "odd"},
		"listed twice": {prepare: func(f *fleet) {
			f.config.Nodes = append(f.config.Nodes, &redis.Options{Addr: plain.Addr}, &redis.Options{Addr: plain.Addr})
		}, says: "listed twice"},
		"unreachable": {prepare: func(f *fleet) { f.servers[0].Stop() }, says: "0 of 1 Redis nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 1, c.options...)
			if c.prepare != nil {
				c.prepare(f)
			}
			_, err := redlockadapter.New(testContext(t), f.config)
			require.ErrorContains(t, err, c.says)
			if name != "unreachable" {
				require.NotErrorIs(t, err, engine.ErrUnavailable, "a retry does not help")
			}
		})
	}
}

// One unusable server of three is a missing vote: the others serve, and the lock is granted.
func TestOneUnusableServerIsAMissingVote(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]testserver.RedisOption{
		"eviction": {testserver.RedisConfig("maxmemory-policy", "allkeys-lru")},
		"clock": {testserver.RedisEnv("LD_PRELOAD", fakeTime(t)), testserver.RedisEnv("FAKETIME", "+1h"),
			testserver.RedisEnv("FAKETIME_DONT_FAKE_MONOTONIC", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, bad := startFleet(t, 2), testserver.Redis(t, options...)
			f.servers = append(f.servers, bad)
			f.config.Nodes = append(f.config.Nodes, &redis.Options{Addr: bad.Addr})
			f.withShortQuarantine() // one node is missing, so the others wait
			f.init(t)
			b, k := f.backend(t), newLocker(t, f.config)
			k.acquireN(b, 5)
			require.ErrorIs(t, b.NodeStatuses(testContext(t))[2].Err, redlockadapter.ErrNodeSetup)
			require.Equal(t, []int{0, 1}, live(t, b))
		})
	}
}

// New refuses servers by their INFO. These tests edit the INFO of a virtual server.
func TestServersAreRefusedByTheirInfo(t *testing.T) {
	t.Parallel()
	for says, edit := range map[string][2]string{
		"use version 7 or later":        {"redis_version:7.4.0", "redis_version:6.2.14"},
		"use a 64-bit one":              {"arch_bits:64", "arch_bits:32"},
		"a restart cannot be detected":  {"master_replid:", "something_else:"},
		"it is a replica":               {"role:master", "role:slave"},
		"its maxmemory-policy is empty": {"maxmemory_policy:noeviction", "maxmemory_policy:empty"},
	} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newVirtualFleet(t, 1)
				n := f.nodes[0]
				n.mini.Server().SetPreHook(func(c *server.Peer, command string, args ...string) bool {
					if command == "INFO" {
						c.WriteBulk(strings.Replace(n.info(), edit[0], edit[1], 1))
						return true
					}
					return n.before(c, command, args...)
				})
				_, err := redlockadapter.New(t.Context(), f.config)
				require.ErrorIs(t, err, redlockadapter.ErrNodeSetup)
				require.ErrorContains(t, err, says)
			})
		})
	}
}

// A server that becomes unusable loses its vote. It recovers as a lost node.
func TestServerBecomesUnusable(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).withShortQuarantine().init(t)
	b, k := f.backend(t), newLocker(t, f.config)
	k.acquire(b)
	c := f.client(t, 0)
	require.NoError(t, c.ConfigSet(testContext(t), "maxmemory-policy", "allkeys-lru").Err())
	waitFor(t, func() bool {
		err := b.NodeStatuses(testContext(t))[0].Err
		return err != nil && strings.Contains(err.Error(), "noeviction")
	})
	k.acquire(b)
	require.NoError(t, c.ConfigSet(testContext(t), "maxmemory-policy", "noeviction").Err())
	waitFor(t, func() bool { return len(live(t, b)) == 3 })
	k.acquire(b)
}

// TLS and an ACL user work through redis.Options, per node.
func TestTLSAndUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pool := certificate(t, dir)
	secure := testserver.FreeAddr(t)
	_, port, err := net.SplitHostPort(secure)
	require.NoError(t, err)
	testserver.Redis(t, testserver.RedisConfig("tls-port", port), testserver.RedisConfig("tls-auth-clients", "no"),
		testserver.RedisConfig("tls-cert-file", filepath.Join(dir, "cert.pem")), testserver.RedisConfig("tls-key-file",
			filepath.Join(dir, "key.pem")),
		testserver.RedisConfig("tls-ca-cert-file", filepath.Join(dir, "cert.pem")))
	guarded := testserver.Redis(t, testserver.RedisConfig("user", "default", "on", "nopass", "-@all", "+ping"),
		testserver.RedisConfig("user", "leased", "on", ">secret", "~{leased}:*", "&{leased}:*", "+@all"))
	plain := testserver.Redis(t)
	f := &fleet{config: redlockadapter.Config{MaxTTL: time.Minute, NodeTimeout: busyTimeout, Logger: discard(),
		Nodes: []*redis.Options{
			{Addr: secure, TLSConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
			{Addr: guarded.Addr, Username: "leased", Password: "secret"},
			{Addr: plain.Addr},
		}}}
	f.init(t)
	b, k := f.backend(t), newLocker(t, f.config)
	require.Len(t, live(t, b), 3)
	k.acquire(b)
	plain.Stop()
	k.acquireN(b, 5)

	f.config.Nodes[1] = &redis.Options{Addr: guarded.Addr, Username: "leased", Password: "wrong"}
	_, err = redlockadapter.New(testContext(t), f.config)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "wrong\"")
}

// certificate writes a key and a certificate for 127.0.0.1.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	start := engine.SystemClock().Now().Time()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: start.Add(-time.Hour),
		NotAfter:  start.Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der},
		"key.pem": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

// The caller's OnConnect and Dialer are used, and its options are not changed.
func TestCallerOptionsAreUsed(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1).init(t)
	var dialed, connected atomic.Int64
	options := &redis.Options{Addr: f.servers[0].Addr, MaxRetries: 7,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed.Add(1)
			return dialer(addr)(ctx, network, addr)
		},
		OnConnect: func(context.Context, *redis.Conn) error { connected.Add(1); return nil }}
	f.config.Nodes[0] = options
	b := f.backend(t)
	newLocker(t, f.config).acquire(b)
	require.NoError(t, b.Close(testContext(t)))
	require.Positive(t, dialed.Load())
	require.Positive(t, connected.Load())
	require.Equal(t, 7, options.MaxRetries)
}

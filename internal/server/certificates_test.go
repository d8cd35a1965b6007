package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// testCA issues certificates for loopback.
type testCA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newTestCA(t testing.TB) *testCA {
	own, pool := certificate(t)
	cert, err := x509.ParseCertificate(own.Certificate[0])
	require.NoError(t, err)
	return &testCA{t, cert, own.PrivateKey.(*ecdsa.PrivateKey), pool}
}

// issue returns a certificate with a subject common name, of a member with that id.
func (ca *testCA) issue(name string) tls.Certificate {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(ca.t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		URIs: []*url.URL{{Scheme: "leased", Host: "member", Path: "/" + name}}}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	require.NoError(ca.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// client returns the TLS configuration of a client with a certificate.
func (ca *testCA) client(name string) *tls.Config {
	return &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{ca.issue(name)}}
}

// server returns the TLS configuration of a server. Client certificates are verified if
// they are given.
func (ca *testCA) server() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{ca.issue("server")}, ClientCAs: ca.pool,
		ClientAuth: tls.VerifyClientCertIfGiven}
}

// startMembers starts a cluster of three members with TLS and users, in this process.
// The first one leads.
func startMembers(t testing.TB, ca *testCA, users *auth.Users, own string) (members []*server.Server,
	nodes []*raftstore.Node) {
	t.Helper()
	for _, id := range []string{"n1", "n2", "n3"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		peer := ca.client(id)
		s, err := server.New(server.Config{Logger: quiet, Users: users, TLS: ca.server(),
			PeerTLS: func() *tls.Config { return peer.Clone() }, Secret: func() string { return own },
			Raft: raftstore.Config{ID: id, Storage: raftstore.MemoryStorage(), Address: "127.0.0.1:0", Logger: quiet,
				HeartbeatTimeout: steadyHeartbeat, StoreDeadline: time.Minute}}, listener)
		require.NoError(t, err)
		node := s.Node()
		done := make(chan error, 1)
		go func() { done <- s.Serve() }()
		t.Cleanup(func() {
			require.NoError(t, s.Close())
			require.NoError(t, <-done)
		})
		if len(members) == 0 {
			require.NoError(t, node.Bootstrap())
			eventually(t, "the first member leads", node.Leads)
		} else {
			require.NoError(t, s.Join(testContext(t), members[0].Address()))
		}
		members, nodes = append(members, s), append(nodes, node)
	}
	for _, node := range nodes {
		eventually(t, "each member knows the API address of the first", func() bool {
			return node.MemberAPI("n1") == members[0].Address()
		})
	}
	return members, nodes
}

// httpsAs makes a JSON call with a client certificate and headers.
func httpsAs(t testing.TB, address string, config *tls.Config, path, body string, headers ...string) (code int,
	answer map[string]any) {
	t.Helper()
	request := newPost(t, address, path, body)
	request.URL.Scheme = "https"
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &answer), string(raw))
	return response.StatusCode, answer
}

// A verified client certificate identifies its user, over gRPC and HTTP, through the
// leader and through a follower. A secret wins over it, and a wrong secret is refused.
// Only members may name the user of a call.
func TestCertificateUsers(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	alice, alices := newUser(t, "alice", "acquire:*", "read:*")
	members, own := newUser(t, "members")
	members.Member = true
	bob := auth.User{Name: "bob", Certificate: "bob.example.org",
		Rules: auth.Rules{{Right: auth.Acquire, Pattern: "jobs/*"}, {Right: auth.Read, Pattern: "*"}}}
	users := auth.NewUsers([]auth.User{alice, members, bob})
	servers, nodes := startMembers(t, ca, users, own)
	leader, follower := servers[0].Address(), servers[2].Address()
	bobs, eves := ca.client("bob.example.org"), ca.client("eve.example.org")

	for name, address := range map[string]string{"leader": leader, "follower": follower} {
		lock := `{"resource":"jobs/` + name + `","ttl":"10m"}`
		code, answer := httpsAs(t, address, bobs, "/v1/acquire", lock)
		require.Equal(t, http.StatusOK, code, "%s: %v", name, answer)
		code, answer = httpsAs(t, address, bobs, "/v1/acquire", lock)
		require.Equal(t, http.StatusConflict, code, "the leader's answer: %v", answer)
		code, answer = httpsAs(t, address, bobs, "/v1/acquire", `{"resource":"other"}`)
		require.Equal(t, http.StatusForbidden, code, "%v", answer)
		require.Contains(t, answer["message"], "user bob lacks the right acquire")
		_, answer = httpsAs(t, address, bobs, "/v1/inspect", lock[:strings.Index(lock, `,"ttl`)]+"}")
		require.Contains(t, mustJSON(t, answer), `"user":"bob"`)
		client := map[string]string{"leader": "127.0.0.1:", "follower": "127.0.0.1 Go-http-client/"}[name]
		require.Contains(t, mustJSON(t, answer), client, "his address and program, not those of the follower")

		asAlice, asMember, wrong := secret.Header(alices), secret.Header(own), secret.Header(secret.New())
		for what, c := range map[string]struct {
			config  *tls.Config
			headers []string
			code    int
		}{
			"unknown certificate": {eves, nil, http.StatusUnauthorized},
			"no certificate":      {&tls.Config{RootCAs: ca.pool}, nil, http.StatusUnauthorized},
			"wrong secret":        {bobs, []string{"Authorization", wrong}, http.StatusUnauthorized},
			"empty header":        {bobs, []string{"Authorization", ""}, http.StatusUnauthorized},
			"two headers": {bobs, []string{"Authorization", asAlice, "Authorization", asMember},
				http.StatusUnauthorized},
			"secret":             {bobs, []string{"Authorization", asAlice}, http.StatusOK},
			"secret and unknown": {eves, []string{"Authorization", asAlice}, http.StatusOK},
			"not ASCII":          {bobs, []string{"User-Agent", "café", "Traceparent", "café"}, http.StatusOK},
			"user names another": {bobs, []string{"Leased-User", "alice"}, http.StatusForbidden},
			"user names another by secret": {eves, []string{"Authorization", asAlice, "Leased-User", "bob"},
				http.StatusForbidden},
			"unknown names a user": {eves, []string{"Leased-User", "alice"}, http.StatusUnauthorized},
			"member names a user":  {eves, []string{"Authorization", asMember, "Leased-User", "alice"}, http.StatusOK},
			"member names an unknown user": {eves, []string{"Authorization", asMember, "Leased-User", "mallory"},
				http.StatusUnauthorized},
			"member without rights":         {eves, []string{"Authorization", asMember}, http.StatusForbidden},
			"certificate of a member names": {ca.client("n1"), []string{"Leased-User", "alice"}, http.StatusUnauthorized},
		} {
			code, answer := httpsAs(t, address, c.config, "/v1/inspect", `{"resource":"other"}`, c.headers...)
			require.Equal(t, c.code, code, "%s, %s: %v", name, what, answer)
		}
	}

	dial := func(config *tls.Config) pb.LeaseServiceClient {
		conn, err := grpc.NewClient(leader, secret.DialOptions(config, "")...)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return pb.NewLeaseServiceClient(conn)
	}
	ctx := testContext(t)
	_, err := dial(bobs).Acquire(ctx, &pb.AcquireRequest{Resource: "jobs/grpc", Ttl: "10m"})
	require.NoError(t, err)
	_, err = dial(bobs).Acquire(ctx, &pb.AcquireRequest{Resource: "other"})
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrForbidden)
	_, err = dial(eves).Acquire(ctx, &pb.AcquireRequest{Resource: "jobs/grpc"})
	require.ErrorIs(t, wire.FromStatus(err), wire.ErrUnauthenticated)
	for _, values := range [][]string{
		{"authorization", secret.Header(secret.New())},
		{"authorization", "x", "authorization", "y"},
		{"authorization", ""},
	} {
		_, err = dial(bobs).Inspect(metadata.AppendToOutgoingContext(ctx, values...), &pb.InspectRequest{Resource: "a"})
		require.ErrorIs(t, wire.FromStatus(err), wire.ErrUnauthenticated, "%v", values)
	}

	testOwnerAfterFailover(t, servers, nodes, ca, alices, bobs)
}

// mustJSON returns a value as JSON.
func mustJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// testOwnerAfterFailover checks that a new leader knows the owners of sessions.
func testOwnerAfterFailover(t *testing.T, servers []*server.Server, nodes []*raftstore.Node, ca *testCA, alices string,
	bobs *tls.Config) {
	code, opened := httpsAs(t, servers[0].Address(), bobs, "/v1/open-session", `{"ttl":"10m"}`)
	require.Equal(t, http.StatusOK, code)
	require.NoError(t, nodes[0].Transfer(testContext(t), "n2"))
	eventually(t, "the second member leads", nodes[1].Leads)
	name := `{"sessionId":"` + opened["sessionId"].(string) + `"}`
	eventually(t, "the new leader knows the owner", func() bool {
		code, answer := httpsAs(t, servers[1].Address(), bobs, "/v1/renew", name)
		require.NotEqual(t, http.StatusForbidden, code, "%v", answer)
		return code == http.StatusOK
	})
	code, answer := httpsAs(t, servers[1].Address(), &tls.Config{RootCAs: ca.pool}, "/v1/renew", name,
		"Authorization", secret.Header(alices))
	require.Equal(t, http.StatusForbidden, code, "%v", answer)
}

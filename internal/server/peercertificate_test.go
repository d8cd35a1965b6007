package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/transport"
)

// A caller with a certificate makes the calls of a joining member only for the member
// that its certificate names.
func TestMemberCallsNeedTheirCertificate(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	s := startServer(t, func(c *server.Config) {
		c.TLS = &tls.Config{Certificates: []tls.Certificate{a.Issue("server", nil)},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool}
	})
	dial := func(own tls.Certificate) pb.ClusterServiceClient {
		conn, err := grpc.NewClient("passthrough:///"+s.Address(),
			grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: a.Pool,
				Certificates: []tls.Certificate{own}})))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return pb.NewClusterServiceClient(conn)
	}
	naming := func(id string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.URIs = append(c.URIs, transport.MemberURI(id)) }
	}
	byHTTP := func(own tls.Certificate, path, body string) int {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Pool,
			Certificates: []tls.Certificate{own}}}}
		defer client.CloseIdleConnections()
		response, err := client.Post("https://"+s.Address()+"/v1/"+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		response.Body.Close()
		return response.StatusCode
	}
	add := &pb.AddLearnerRequest{Id: "late", RaftAddress: "127.0.0.1:1"}
	ctx := testContext(t)
	for name, own := range map[string]tls.Certificate{"client": a.Issue("late", nil), "another member": a.Issue("other",
		naming("other"))} {
		client := dial(own)
		_, err := client.AddLearner(ctx, add)
		require.ErrorIs(t, wire.FromStatus(err), engine.ErrForbidden, name)
		_, err = client.Promote(ctx, &pb.PromoteRequest{Id: "late", Applied: 1 << 40})
		require.ErrorIs(t, wire.FromStatus(err), engine.ErrForbidden, name)
		_, err = client.Announce(ctx, &pb.AnnounceRequest{Id: "late", ApiAddress: "127.0.0.1:2"})
		require.ErrorIs(t, wire.FromStatus(err), engine.ErrForbidden, name)
		for path, body := range map[string]string{"add-learner": `{"id":"late","raftAddress":"127.0.0.1:1"}`,
			"promote": `{"id":"late"}`, "announce": `{"id":"late","apiAddress":"127.0.0.1:2"}`} {
			require.Equal(t, http.StatusForbidden, byHTTP(own, path, body), "%s %s", name, path)
		}
	}
	require.Equal(t, http.StatusOK, byHTTP(a.Issue("late", naming("late")), "add-learner",
		`{"id":"late","raftAddress":"127.0.0.1:1"}`))
	member := dial(a.Issue("late", naming("late")))
	_, err := member.AddLearner(ctx, add)
	require.NoError(t, err)
	_, err = member.Announce(ctx, &pb.AnnounceRequest{Id: "late", ApiAddress: "127.0.0.1:2"})
	require.NoError(t, err)
}

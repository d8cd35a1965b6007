package client_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/internal/testserver"
)

// Without a certificate for a service that requires one, Dial says which option sets it.
func TestDialErrorNamesTheMissingCertificate(t *testing.T) {
	t.Parallel()
	authority := testserver.NewAuthority(t)
	service := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: authority.Pool, Certificates: []tls.Certificate{authority.Issue("n1", nil)}})))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = service.Serve(listener) }()
	defer service.Stop()
	_, err = client.Dial(t.Context(), []string{listener.Addr().String()},
		client.WithTLS(&tls.Config{RootCAs: authority.Pool}))
	require.ErrorContains(t, err, "asks for a client certificate")
	require.ErrorContains(t, err, "client.WithTLS")
}

// The error of Dial under a context that ends names the member and what failed.
func TestDialErrorNamesTheCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	nobody := testserver.FreeAddr(t)
	_, err := client.Dial(ctx, []string{nobody})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, nobody)
	require.ErrorContains(t, err, "connection refused")
}

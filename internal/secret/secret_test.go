package secret_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
)

func TestSecretFormat(t *testing.T) {
	text := secret.New()
	require.NoError(t, secret.Check(text))
	require.NotEqual(t, text, secret.New())
	for _, weak := range []string{"", "hunter2", "leased_", text[:len(text)-1], text + "0", strings.ToUpper(text),
		" " + text,
		"leased_" + strings.Repeat("g", 64)} {
		err := secret.Check(weak)
		require.ErrorIs(t, err, secret.ErrForm, weak)
		if len(weak) > 10 {
			require.NotContains(t, err.Error(), weak, "what was given may be a password")
		}
	}
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
	read, err := secret.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, read)
	require.NoError(t, os.WriteFile(path, []byte("hunter2\n"), 0o600))
	_, err = secret.ReadFile(path)
	require.ErrorIs(t, err, secret.ErrForm)
	require.NotContains(t, err.Error(), "hunter2")
}

// Texts for people contain no secret, wherever it was given.
func TestSecretsAreNotShown(t *testing.T) {
	text := secret.New()
	for _, given := range []string{text, text + "\n", "./" + text, text[:40], strings.ToUpper(text[7:])} {
		given = "leased_" + strings.TrimPrefix(given, "leased_")
		hidden := secret.Hide("open " + given + ": no such file")
		require.NotContains(t, hidden, given[10:30])
		require.Contains(t, hidden, "no such file")
		_, err := secret.ReadFile(given)
		require.ErrorIs(t, err, secret.ErrPath)
		require.NotContains(t, err.Error(), given[10:30])
	}
	require.Equal(t, "/etc/leased_members.secret", secret.Hide("/etc/leased_members.secret"))
	_, err := secret.ReadFile(filepath.Join(t.TempDir(), "leased_members.secret"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCheckAddress(t *testing.T) {
	text := secret.New()
	for _, address := range []string{"127.0.0.1:7420", "[::1]:7420", "127.9.9.9:1", "a-name:7420"} {
		require.NoError(t, secret.CheckAddress(address, nil, text), address)
	}
	require.NoError(t, secret.CheckAddress("192.0.2.1:7420", &tls.Config{}, text))
	require.NoError(t, secret.CheckAddress("192.0.2.1:7420", nil, ""))
	err := secret.CheckAddress("192.0.2.1:7420", nil, text)
	require.ErrorIs(t, err, wire.ErrUnauthenticated)
	require.ErrorContains(t, err, "192.0.2.1:7420")
	require.NotContains(t, err.Error(), text)
}

// elsewhere is a connection whose peer has the address of another machine.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7420} }

// A secret is not sent over a connection that others can read, regardless of the host
// name and of the dialer.
func TestSecretIsNotSentUnencrypted(t *testing.T) {
	seen := make(chan []string, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		seen <- metadata.ValueFromIncomingContext(stream.Context(), "authorization")
		return stream.SendMsg(&emptypb.Empty{})
	}))
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() { s.Stop(); require.NoError(t, <-done) })

	text := secret.New()
	call := func(more ...grpc.DialOption) error {
		conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), append(secret.DialOptions(nil, text),
			more...)...)
		require.NoError(t, err)
		defer conn.Close()
		return conn.Invoke(t.Context(), "/a.B/C", &emptypb.Empty{}, &emptypb.Empty{})
	}
	require.NoError(t, call())
	require.Equal(t, []string{secret.Header(text)}, <-seen)

	away := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return elsewhere{conn}, err
	})
	require.ErrorContains(t, call(away), "a secret is not sent without TLS to 192.0.2.1:7420")
	require.ErrorContains(t, call(away, grpc.WithTransportCredentials(insecure.NewCredentials())),
		"a secret is not sent without TLS")
	require.Empty(t, seen)
}

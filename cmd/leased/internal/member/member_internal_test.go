package member

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// testTimeout ends a test that hangs.
const testTimeout = 2 * time.Minute

// startMember starts a single member with more flags.
func startMember(t *testing.T, args ...string) (*Member, *settings.Settings) {
	t.Helper()
	s := newSettings(t, args...)
	m, err := Start(testContext(t), s, "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Stop()) })
	return m, s
}

// newSettings returns the settings of a member with a new data folder.
func newSettings(t *testing.T, args ...string) *settings.Settings {
	t.Helper()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	settings.Flags(flags)
	require.NoError(t, flags.Parse(append([]string{"--id=one", "--data=" + filepath.Join(t.TempDir(), "one"),
		"--listen=127.0.0.1:0",
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1"}, args...)))
	s, err := settings.Load(flags, func(string) (string, bool) { return "", false }, "")
	require.NoError(t, err)
	return s
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// dial connects to a member, with a secret unless it is empty.
func dial(t *testing.T, m *Member, text string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(m.Address(), secret.DialOptions(nil, text)...)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A reload adds and removes users. An invalid file, or one without the member's own
// user, changes nothing.
func TestReloadUsers(t *testing.T) {
	dir := t.TempDir()
	file, ownFile := filepath.Join(dir, "users.yaml"), filepath.Join(dir, "own")
	add := func(name string) string {
		text, err := settings.AddUser(file, auth.User{Name: name, Member: name == "members", Rules: auth.AdminRules()})
		require.NoError(t, err)
		return text
	}
	alice, own := add("alice"), add("members")
	require.NoError(t, os.WriteFile(ownFile, []byte(own), 0o600))
	m, s := startMember(t, "--users="+file, "--secret-file="+ownFile)
	call := func(text string) error {
		_, err := pb.NewClusterServiceClient(dial(t, m, text)).Status(testContext(t), &pb.StatusRequest{})
		return wire.FromStatus(err)
	}
	require.NoError(t, call(alice))
	require.ErrorIs(t, call(""), wire.ErrUnauthenticated)

	bob := add("bob")
	require.ErrorIs(t, call(bob), wire.ErrUnauthenticated)
	require.NoError(t, settings.RemoveUser(file, "alice"))
	require.NoError(t, m.Reload(s))
	require.NoError(t, call(bob))
	require.ErrorIs(t, call(alice), wire.ErrUnauthenticated)

	good, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, settings.RemoveUser(file, "members"))
	require.ErrorContains(t, m.Reload(s), "must contain the secret of a user in users")
	require.NoError(t, call(own))
	require.NoError(t, os.WriteFile(file, bytes.ReplaceAll(good, []byte("member: true"), []byte("member: false")), 0o600))
	require.ErrorContains(t, m.Reload(s), "who is not a member in users")
	_, err = newCredentials(s, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "leased user add --member", "it does not start either")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorIs(t, m.Reload(s), settings.ErrNoUsers)
	require.NoError(t, os.WriteFile(file, []byte("- {name: eve, hashes: [hunter2]}\n"), 0o600))
	require.ErrorIs(t, m.Reload(s), settings.ErrInvalid)
	require.NoError(t, call(bob))

	require.NoError(t, os.WriteFile(file, good, 0o600))
	require.NoError(t, settings.DenyUser(file, "bob", auth.Rules{{Right: auth.Cluster}}))
	require.NoError(t, m.Reload(s))
	require.ErrorIs(t, call(bob), engine.ErrForbidden, "a reload removes rights")

	next := filepath.Join(dir, "next.yaml") // the member changes its own secret
	text, err := settings.AddUser(next, auth.User{Name: "members", Member: true})
	require.NoError(t, err)
	require.NoError(t, os.Rename(next, file))
	require.NoError(t, os.WriteFile(ownFile, []byte(text), 0o600))
	require.NoError(t, m.Reload(s))
	require.Equal(t, text, m.creds.secret())
	require.ErrorIs(t, call(own), wire.ErrUnauthenticated)
}

// A member whose Redis nodes are down starts and serves correctness mode.
func TestStartWithoutRedis(t *testing.T) {
	m, _ := startMember(t, "--redis=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
	leases := pb.NewLeaseServiceClient(dial(t, m, ""))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	ctx := testContext(t)
	for !m.Node().Leads() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.Fail(t, "the only member is not the leader")
		}
	}
	_, err := leases.Acquire(ctx, &pb.AcquireRequest{Resource: "a"})
	require.NoError(t, err)
}

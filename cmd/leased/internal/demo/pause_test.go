//go:build unix

package demo_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/demo"
	"github.com/leased-project/leased/cmd/leased/internal/member"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// The test binary is also the program of the holders.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "holder" {
		if err := demo.Hold(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestUpdateIsLostWithoutGateOnly(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings.Flags(flags)
	require.NoError(t, flags.Parse([]string{"--id=demo", "--data=" + filepath.Join(t.TempDir(), "raft"),
		"--listen=127.0.0.1:0",
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1"}))
	s, err := settings.Load(flags, func(string) (string, bool) { return "", false }, "")
	require.NoError(t, err)
	m, err := member.Start(ctx, s, "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Stop()) }()

	var out strings.Builder
	pause := demo.Pause{Endpoint: m.Address(), Dir: t.TempDir(), Holder: []string{os.Args[0], "holder"}, Out: &out}
	require.NoError(t, pause.Run(ctx), "%s", &out)
	before, after, found := strings.Cut(out.String(), "2. The same lock, and a gate")
	require.True(t, found)
	requireInOrder(t, before, "alice  acquires the lock", "alice  reads 100", "SIGSTOP", "bob    acquires the lock",
		"bob    reads 100",
		"bob    writes 150", "SIGCONT", "alice  writes 70", "Bob's 50 are lost")
	requireInOrder(t, after, "alice  acquires the lock", "alice  reads 100", "SIGSTOP", "bob    acquires the lock",
		"bob    writes 150", "SIGCONT",
		"alice  is rejected: stale fencing token", "alice  acquires the lock", "alice  reads 150", "alice  writes 120",
		"includes both updates")
}

func requireInOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		_, rest, found := strings.Cut(text, part)
		require.True(t, found, "%q is missing in the rest of the report:\n%s", part, text)
		text = rest
	}
}

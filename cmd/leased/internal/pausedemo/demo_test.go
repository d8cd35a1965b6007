//go:build unix

package pausedemo_test

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

	"github.com/leased-project/leased/cmd/leased/internal/member"
	"github.com/leased-project/leased/cmd/leased/internal/pausedemo"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// This binary is also the holders.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "holder" {
		if err := pausedemo.Hold(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestTheStory(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings.Flags(flags)
	require.NoError(t, flags.Parse([]string{"--id=demo", "--data=" + filepath.Join(t.TempDir(), "raft"), "--listen=127.0.0.1:0",
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=1"}))
	s, err := settings.Load(flags, func(string) (string, bool) { return "", false }, "")
	require.NoError(t, err)
	m, err := member.Start(ctx, s, "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Stop()) }()

	var out strings.Builder
	demo := pausedemo.Demo{Endpoint: m.Address(), Dir: t.TempDir(), Holder: []string{os.Args[0], "holder"}, Out: &out}
	require.NoError(t, demo.Run(ctx), "%s", &out)
	t.Log(out.String())
	before, after, found := strings.Cut(out.String(), "2. The same lock, and a gate")
	require.True(t, found)
	inOrder(t, before, "alice  has the lock", "alice  reads 100", "SIGSTOP", "bob    has the lock", "bob    reads 100", "bob    writes 150",
		"SIGCONT", "alice  writes 70", "Bob's 50 are lost")
	inOrder(t, after, "alice  has the lock", "alice  reads 100", "SIGSTOP", "bob    has the lock", "bob    writes 150", "SIGCONT",
		"alice  is refused: stale fencing token", "alice  has the lock", "alice  reads 150", "alice  writes 120", "both updates are there")

	var page strings.Builder
	require.NoError(t, demo.Picture(&page))
	first, second, found := strings.Cut(page.String(), "<h2>2. The same lock")
	require.True(t, found)
	inOrder(t, first, "Broken: G2", "circle class=\"wrote bad\"", "writes 150", "writes 70")
	require.NotContains(t, second, "Broken")
	inOrder(t, second, "path class=\"stale\"", "is old", "writes 120")
}

func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		_, rest, found := strings.Cut(text, part)
		require.True(t, found, "%q is missing in the rest of the story:\n%s", part, text)
		text = rest
	}
}

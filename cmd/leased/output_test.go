package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

// Names in a table cannot control the terminal or break its lines.
func TestRowEscapesNames(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row(w, "RESOURCE", "HOLDER")
	row(w, "a\x1b[2J", "b\n\u202ec\td")
	row(w, "", 7)
	require.NoError(t, w.Flush())
	require.Equal(t, "RESOURCE  HOLDER\na\\x1b[2J  b\\x0a\\u202ec\\x09d\n-         7\n", out.String())
}

// Names of holders cannot control the terminal of those who wait or watch. A database does not check them.
func TestWaitersAndEventsEscapeNames(t *testing.T) {
	t.Parallel()
	const evil, escaped = "b\x1b[2J", `b\x1b[2J`
	text, known := new(waitingLine).text(lease.Status{Holders: []lease.Party{{Holder: evil}}}, time.Now())
	require.True(t, known)
	require.Contains(t, text, "held by "+escaped)
	require.NotContains(t, text, evil)
	var out strings.Builder
	event := &pb.Event{Type: "granted", Resource: "a", Party: &pb.Party{Holder: evil}}
	require.NoError(t, (&output{format: "table"}).event(&out, event))
	require.Contains(t, out.String(), escaped)
	require.NotContains(t, out.String(), evil)
}

// A text that takes several lines of the terminal is removed as a whole.
func TestWrappedTextIsErased(t *testing.T) {
	t.Parallel()
	for columns, up := range map[int]int{0: 0, 1: 0, 80: 0, 81: 1, 160: 1, 161: 2} {
		text := strings.Repeat("日", columns/2) + strings.Repeat("a", columns%2)
		require.Equal(t, "\r"+strings.Repeat("\x1b[A", up)+"\x1b[J", erase(text, 80), columns)
	}
}

// The state of a cluster warns when tokens come near the bound of the gates, in either mode.
func TestClusterStatusWarnsOfLargeTokens(t *testing.T) {
	t.Parallel()
	for warns, status := range map[bool]*pb.StatusResponse{
		false: {LastToken: 1 << 39, Redis: []*pb.RedisNode{{Max: 1 << 39}}},
		true:  {LastToken: 7, Redis: []*pb.RedisNode{{Max: 7}, {Max: 1<<39 + 1}}},
	} {
		var out strings.Builder
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		tableOfCluster(w, status, nil)
		require.NoError(t, w.Flush())
		require.Equal(t, warns, strings.Contains(out.String(), "warning: tokens have reached 549755813889"), out.String())
	}
}

// An error that repeats an argument does not show the secret in it, as text or as JSON.
func TestErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	given := secret.New()
	var out, text strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(&text)
	require.Equal(t, wire.ExitUsage, execute(root, []string{"acquire", "-o", "json", "--permits", given, "jobs/7"}))
	for _, message := range []string{out.String(), text.String()} {
		require.NotContains(t, message, given)
		require.Contains(t, message, "(a secret, not shown)")
	}
}

// With -o json, an answer looks as it does in the HTTP API: false is written, too.
func TestJSONIsThatOfTheAPI(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, printJSON(&out, &pb.ReleaseResponse{}, ""))
	require.Equal(t, "{\"released\":false}\n", out.String())
}

// A command whose result cannot be written, as on a full disk, fails. A password is not shown again.
func TestUnwrittenOutputIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	users := filepath.Join(dir, "users.yaml")
	_, err := settings.AddUser(users, auth.User{Name: "alice"})
	require.NoError(t, err)
	full, err := os.Open(os.DevNull) // for reading only
	require.NoError(t, err)
	defer full.Close()
	for _, line := range []string{
		"user list --users " + users,
		"certs --client alice --pkcs12 --dir " + filepath.Join(dir, "tls"),
		"serve --print-config --bootstrap-expect 1 --data " + dir,
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(line))
		root.SetOut(full)
		require.Error(t, root.ExecuteContext(t.Context()), line)
	}
}

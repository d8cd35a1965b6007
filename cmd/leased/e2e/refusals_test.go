//go:build unix

package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/memgate"
	"github.com/leased-project/leased/storagegate/sqlgate"
	"github.com/leased-project/leased/telemetry/refusals"
)

// refusedEvent is a refused write in the history of a lock.
type refusedEvent struct {
	Type, Gate, Reason string
	Mark               fencing.Token
	Party              struct {
		Holder, User string
		Token        fencing.Token
	}
}

// refusedWrites returns the refused writes of a lock, newest first.
func refusedWrites(t *testing.T, api, secret, lock string) []refusedEvent {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "curl", "-sS", "-H", "content-type: application/json", "-H",
		"Authorization: Bearer "+secret,
		"-d", `{"resource":"`+lock+`"}`, "http://"+api+"/v1/history").Output()
	if err != nil {
		return nil // the service is down
	}
	var history struct{ Events []refusedEvent }
	require.NoError(t, json.Unmarshal(out, &history), string(out))
	var refused []refusedEvent
	for _, e := range history.Events {
		if e.Type == "refused" {
			refused = append(refused, e)
		}
	}
	return refused
}

// refusalTest is a service with users, on which several gates report.
type refusalTest struct {
	t                    *testing.T
	service              *process
	api                  string
	admin, writer, guest string
}

// startRefusalTest starts a service with an administrator, a writer who may acquire the
// locks, and a guest who may not.
func startRefusalTest(t *testing.T) *refusalTest {
	t.Helper()
	users := filepath.Join(t.TempDir(), "users.yaml")
	r := &refusalTest{t: t, admin: addUser(t, users, "admin", "--admin"),
		writer: addUser(t, users, "writer", "--allow=acquire:orders/*"),
		guest:  addUser(t, users, "guest", "--allow=acquire:other/*")}
	r.service, r.api = single(t, "--users="+users)
	return r
}

// dial connects a program to the service.
func (r *refusalTest) dial(t *testing.T, name, secret string) *lease.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c, err := client.Dial(ctx, []string{r.api}, client.WithSecret(secret), client.WithLeaseOptions(lease.WithName(name)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

// tokens returns the tokens of two holders in turn.
func tokens(t *testing.T, c *lease.Client, lock fencing.Resource) (older, newer fencing.Token) {
	t.Helper()
	for _, token := range []*fencing.Token{&older, &newer} {
		require.NoError(t, c.Do(t.Context(), lock, func(_ context.Context, l *lease.Lease) error {
			*token = l.Token()
			return nil
		}))
	}
	return older, newer
}

// TestRefusedWritesAreInTheHistory checks that a write that a gate refuses is in the
// history of its lock, for gates of a program and for the gate proxy.
func TestRefusedWritesAreInTheHistory(t *testing.T) {
	t.Parallel()
	r := startRefusalTest(t)
	t.Run("memory", func(t *testing.T) { r.program(t, "orders/1", "memory", memgate.New[int](fencing.Rule{})) })
	t.Run("sql", func(t *testing.T) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=busy_timeout(60000)")
		require.NoError(t, err)
		defer db.Close()
		gate, err := sqlgate.New(db, sqlgate.SQLite, fencing.Rule{})
		require.NoError(t, err)
		require.NoError(t, gate.Install(t.Context()))
		r.program(t, "orders/2", "sql", gate)
	})
	t.Run("without the right", r.withoutRight)
	t.Run("proxy", r.proxy)
}

// reportable is a gate of a program.
type reportable interface {
	Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error
	Audit(hook func(context.Context, storagegate.Decision))
}

// program lets a program report what its gate refuses.
func (r *refusalTest) program(t *testing.T, lock fencing.Resource, kind string, gate reportable) {
	c := r.dial(t, "worker-"+kind, r.writer)
	reporter := refusals.New(c)
	gate.Audit(reporter.Audit(kind))
	older, newer := tokens(t, c, lock)
	require.NoError(t, gate.Enter(t.Context(), lock, newer))
	require.ErrorIs(t, gate.Enter(t.Context(), lock, older), fencing.ErrStale)
	require.NoError(t, reporter.Flush(t.Context()))
	require.Equal(t, refusals.Counts{Sent: 1}, reporter.Counts())
	refused := refusedWrites(t, r.api, r.admin, string(lock))
	require.Len(t, refused, 1)
	require.Equal(t, kind, refused[0].Gate)
	require.Equal(t, "stale", refused[0].Reason)
	require.Equal(t, older, refused[0].Party.Token)
	require.Equal(t, newer, refused[0].Mark)
	require.Equal(t, "worker-"+kind, refused[0].Party.Holder)
	require.Equal(t, "writer", refused[0].Party.User)
}

// withoutRight checks that a user who may not acquire the lock cannot report, and that
// the log of the program is not filled.
func (r *refusalTest) withoutRight(t *testing.T) {
	c := r.dial(t, "guest", r.guest)
	require.ErrorIs(t, c.ReportRefusal(t.Context(), lease.Refusal{Resource: "orders/3", Token: 1, Mark: 2,
		Gate: "memory"}), lease.ErrForbidden)
	var log transcript
	reporter := refusals.New(c, refusals.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	audit := reporter.Audit("memory")
	for token := fencing.Token(1); token <= 2; token++ {
		audit(t.Context(), storagegate.Decision{Resource: "orders/3", Token: token, Mark: 9, Outcome: storagegate.Stale})
	}
	require.NoError(t, reporter.Flush(t.Context()))
	require.Equal(t, refusals.Counts{Failed: 2}, reporter.Counts())
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Empty(t, refusedWrites(t, r.api, r.admin, "orders/3"))
}

// proxy checks that a gate proxy reports and exports what it refuses, that it works
// while the service is down, and that it reports again when the service is back.
func (r *refusalTest) proxy(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(r.writer), 0o600))
	scraped := testserver.FreeAddr(t)
	p := start(t, nil, leased, "gate", "proxy", "--listen=127.0.0.1:0", "--metrics-listen="+scraped, "--admin=127.0.0.1:0",
		"--upstream="+upstream.URL,
		"--journal="+filepath.Join(t.TempDir(), "journal.db"), "--resource-path=/orders/{id}=orders/{id}",
		"--report", "--endpoint="+r.api, "--secret-file="+secret)
	p.says("admin http://")
	words := strings.Fields(p.output.String())
	g := &gateProxy{url: words[3], admin: words[5]}
	write := func(token fencing.Token) error { return g.put(t, token, "x") }
	require.NoError(t, write(50))
	require.ErrorIs(t, write(41), fencing.ErrStale)
	reported := func(token fencing.Token) func() bool {
		return func() bool {
			for _, e := range refusedWrites(t, r.api, r.admin, "orders/42") {
				if e.Gate == "http" && e.Party.Token == token && strings.HasPrefix(e.Party.Holder, "gate proxy") {
					return true
				}
			}
			return false
		}
	}
	eventually(t, reported(41), "for the report")

	r.service.signal(syscall.SIGKILL)
	<-r.service.exited
	require.ErrorIs(t, write(42), fencing.ErrStale, "the proxy does not need the service")
	args := r.service.cmd.Args
	r.service = start(r.t, nil, args...)
	healthy(t, r.api)
	require.ErrorIs(t, write(43), fencing.ErrStale)
	eventually(t, reported(43), "for a report after the restart")

	for _, address := range []string{g.admin, "http://" + scraped} {
		var page string
		require.NoError(t, curl(t, address+"/metrics", "", &page))
		require.Contains(t, page, "leased_gate_decisions_total{gate=\"http\",outcome=\"stale\"} 3\n")
		require.Contains(t, page, "leased_gate_decisions_total{gate=\"http\",outcome=\"admitted\"} 1\n")
		require.Contains(t, page, "leased_gate_reports_total{result=\"sent\"} ")
	}
	require.Error(t, curl(t, "http://"+scraped+"/flights", ""), "only operators see the admin API")

	r.service.signal(syscall.SIGKILL)
	<-r.service.exited
	require.ErrorIs(t, write(44), fencing.ErrStale)
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code(), "a report that cannot be sent does not keep the proxy from stopping")
}

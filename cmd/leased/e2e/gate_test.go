//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/httpgate"
)

// runApart runs leased to its end and returns both outputs apart.
func runApart(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), leased, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestGateDDL(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"postgres", "mysql", "sqlite"} {
		code, out, _ := runApart(t, "gate", "ddl", "--dialect", dialect)
		require.Zero(t, code)
		require.Contains(t, out, "leased_marks", dialect)
		code, out, _ = runApart(t, "gate", "ddl", "--dialect", dialect, "--guard-table", "orders", "--guard-column", "id",
			"--guard-prefix", "orders/")
		require.Zero(t, code)
		require.Contains(t, out, "leased_guard", dialect)
	}
	code, out, _ := runApart(t, "gate", "ddl", "--dialect", "kubernetes",
		"--guard-user", "system:serviceaccount:shop:widgets",
		"--max-jump", "5000000000")
	require.Zero(t, code)
	for _, want := range []string{"ValidatingAdmissionPolicyBinding", ` == "system:serviceaccount:shop:widgets"`,
		"<= 5000000000"} {
		require.Contains(t, out, want)
	}
	for want, args := range map[string][]string{
		"--dialect is required":               nil,
		"mysql or sqlite, or kubernetes":      {"--dialect", "oracle"},
		"is for --dialect kubernetes":         {"--dialect", "sqlite", "--guard-user", "widgets"},
		"takes only --guard-user":             {"--dialect", "kubernetes", "--guard-table", "orders"},
		"is not the name of a user":           {"--dialect", "kubernetes", "--guard-user", `a"b`},
		"the bound 9007199254740992":          {"--dialect", "kubernetes", "--max-jump", "9007199254740992"},
		"must be given together":              {"--dialect", "sqlite", "--guard-table", "orders"},
		"is not a valid table or column name": {"--dialect", "sqlite", "--guard-table", "or;ders", "--guard-column", "id"},
		"unknown flag: --dialekt; see `le":    {"--dialekt", "sqlite"},
	} {
		code, out, stderr := runApart(t, append([]string{"gate", "ddl"}, args...)...)
		require.Equal(t, 2, code, want)
		require.Empty(t, out)
		require.Contains(t, stderr, want)
	}
}

func TestGateProxyFlags(t *testing.T) {
	t.Parallel()
	journal := filepath.Join(t.TempDir(), "journal.db")
	good := []string{"--upstream", "http://127.0.0.1:1", "--journal", journal,
		"--resource-path", "/orders/{id}=orders/{id}"}
	for want, args := range map[string][]string{
		"--upstream is required":              {"--journal", journal},
		"is not an http or https URL":         {"--upstream", "localhost:80", "--journal", journal},
		"--journal is required":               {"--upstream", "http://127.0.0.1:1"},
		"--resource-path or --resource-hea":   {"--upstream", "http://127.0.0.1:1", "--journal", journal},
		"cannot be combined":                  append(good, "--resource-header", "X"),
		"the name uses {idd}":                 append(good, "--resource-path", "/x/{id}={idd}"),
		"--wait-timeout (-1s) must be above":  append(good, "--wait-timeout", "-1s"),
		"--answer-timeout (0s) must be above": append(good, "--answer-timeout", "0"),
		"--buffer (0) must be above":          append(good, "--buffer", "0"),
		"--max-jump":                          append(good, "--max-jump", "99999999999999999"),
		"--unknown-status (7)":                append(good, "--unknown-status", "7"),
		"must be a loopback address":          append(good, "--admin", "0.0.0.0:0"),
		"missing port":                        append(good, "--admin", "localhost"),
	} {
		code, out, stderr := runApart(t, append([]string{"gate", "proxy"}, args...)...)
		require.Equal(t, 2, code, want)
		require.Empty(t, out)
		require.Contains(t, stderr, want)
	}
	require.NoFileExists(t, journal)
	code, _, stderr := runApart(t, append([]string{"gate", "proxy", "--listen", "nowhere.invalid:x"}, good...)...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "--listen")
	code, _, stderr = runApart(t, "gate", "proxy", "flights", "--admin", "127.0.0.1:1")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "check that it runs")
}

// gateProxy is a running gate proxy.
type gateProxy struct {
	process    *os.Process
	ended      chan error
	url, admin string
}

func startProxy(t *testing.T, upstream, journal string) *gateProxy {
	t.Helper()
	cmd := exec.Command(leased, "gate", "proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--upstream", upstream,
		"--journal", journal, "--resource-path", "/orders/{id}=orders/{id}")
	cmd.Stderr = io.Discard
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &gateProxy{process: cmd.Process, ended: make(chan error, 1)}
	t.Cleanup(func() { _ = p.process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, "the proxy did not start")
	words := strings.Fields(line)
	require.Len(t, words, 8, line)
	p.url, p.admin = words[3], strings.TrimPrefix(words[5], "http://")
	go func() { p.ended <- cmd.Wait() }()
	return p
}

func (p *gateProxy) put(t *testing.T, token fencing.Token, value string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.url+"/orders/42", strings.NewReader(value))
	require.NoError(t, err)
	httpgate.SetToken(r, token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return httpgate.Check(resp)
}

// slowService blocks each write with the body "slow" until release is closed.
func slowService(t *testing.T) (url string, arrived, release chan struct{}) {
	t.Helper()
	arrived, release = make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) == "slow" {
			arrived <- struct{}{}
			<-release
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, arrived, release
}

// The proxy is killed while the service processes a request. After a restart it
// must not admit a newer holder before an operator reopens the resource.
func TestGateProxyKilledDuringRequest(t *testing.T) {
	t.Parallel()
	upstream, arrived, release := slowService(t)
	journal := filepath.Join(t.TempDir(), "journal.db")
	first := startProxy(t, upstream, journal)
	require.NoError(t, first.put(t, 5, "quick"))
	require.ErrorIs(t, first.put(t, 4, "quick"), fencing.ErrStale)
	broken := make(chan error, 1)
	go func() { broken <- first.put(t, 6, "slow") }()
	testserver.Receive(t, arrived)
	require.NoError(t, first.process.Kill())
	require.Error(t, testserver.Receive(t, broken))
	testserver.Receive(t, first.ended)

	second := startProxy(t, upstream, journal)
	err := second.put(t, 7, "quick")
	require.ErrorContains(t, err, "503")
	require.ErrorContains(t, err, "leased gate proxy reopen")
	code, out, _ := runApart(t, "gate", "proxy", "flights", "--admin", second.admin)
	require.Zero(t, code)
	require.Contains(t, out, "orders/42")
	require.Contains(t, out, "the proxy ended while the request was in flight")
	code, out, _ = runApart(t, "gate", "proxy", "flights", "--json", "--admin", second.admin)
	require.Zero(t, code)
	require.Contains(t, out, `"token":6`)

	close(release) // the operator makes sure that the request has ended
	code, _, stderr := runApart(t, "gate", "proxy", "reopen", "orders/43", "--admin", second.admin)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "404")
	code, out, _ = runApart(t, "gate", "proxy", "reopen", "orders/42", "--admin", second.admin)
	require.Zero(t, code)
	require.Contains(t, out, "reopened orders/42")
	require.ErrorIs(t, second.put(t, 5, "quick"), fencing.ErrStale, "the killed request has raised the mark")
	require.NoError(t, second.put(t, 7, "quick"))
}

// SIGTERM waits for the answer and leaves no resource closed.
func TestGateProxyWaitsForAnswersOnStop(t *testing.T) {
	t.Parallel()
	upstream, arrived, release := slowService(t)
	journal := filepath.Join(t.TempDir(), "journal.db")
	first := startProxy(t, upstream, journal)
	answered := make(chan error, 1)
	go func() { answered <- first.put(t, 6, "slow") }()
	testserver.Receive(t, arrived)
	require.NoError(t, first.process.Signal(syscall.SIGTERM))
	close(release)
	require.NoError(t, testserver.Receive(t, answered))
	require.NoError(t, testserver.Receive(t, first.ended))
	second := startProxy(t, upstream, journal)
	require.NoError(t, second.put(t, 7, "quick"))
}

package main_test

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
	"github.com/leased-project/leased/storagegate/httpgate"
)

// TestGateCommands drives the real binary, built once for all of them.
func TestGateCommands(t *testing.T) {
	b := gateBinary(filepath.Join(t.TempDir(), "leased"))
	output, err := exec.Command("go", "build", "-o", string(b), ".").CombinedOutput()
	require.NoError(t, err, "%s", output)
	t.Run("ddl", b.testDDL)
	t.Run("proxy flags", b.testProxyFlags)
	t.Run("proxy killed in flight", b.testProxyKilled)
	t.Run("proxy stopped", b.testProxyStopped)
}

// gateBinary is the path of the program.
type gateBinary string

// run runs a command to its end.
func (b gateBinary) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), string(b), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func (b gateBinary) testDDL(t *testing.T) {
	for _, dialect := range []string{"postgres", "mysql", "sqlite"} {
		code, out, _ := b.run(t, "gate", "ddl", "--dialect", dialect)
		require.Zero(t, code)
		require.Contains(t, out, "leased_marks", dialect)
		code, out, _ = b.run(t, "gate", "ddl", "--dialect", dialect, "--guard-table", "orders", "--guard-column", "id", "--guard-prefix", "orders/")
		require.Zero(t, code)
		require.Contains(t, out, "leased_guard", dialect)
	}
	for want, args := range map[string][]string{
		"--dialect is required":            nil,
		"use postgres, mysql or sqlite":    {"--dialect", "oracle"},
		"belong together":                  {"--dialect", "sqlite", "--guard-table", "orders"},
		"not a plain name of a table":      {"--dialect", "sqlite", "--guard-table", "or;ders", "--guard-column", "id"},
		"unknown flag: --dialekt; see `le": {"--dialekt", "sqlite"},
	} {
		code, out, stderr := b.run(t, append([]string{"gate", "ddl"}, args...)...)
		require.Equal(t, 2, code, want)
		require.Empty(t, out)
		require.Contains(t, stderr, want)
	}
}

func (b gateBinary) testProxyFlags(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal.db")
	good := []string{"--upstream", "http://127.0.0.1:1", "--journal", journal, "--resource-path", "/orders/{id}=orders/{id}"}
	for want, args := range map[string][]string{
		"--upstream is required":            {"--journal", journal},
		"is no http or https URL":           {"--upstream", "localhost:80", "--journal", journal},
		"--journal is required":             {"--upstream", "http://127.0.0.1:1"},
		"--resource-path or --resource-hea": {"--upstream", "http://127.0.0.1:1", "--journal", journal},
		"exclude each other":                append(good, "--resource-header", "X"),
		"the name uses {idd}":               append(good, "--resource-path", "/x/{id}={idd}"),
		"--wait-timeout -1s must be above":  append(good, "--wait-timeout", "-1s"),
		"--answer-timeout 0s must be above": append(good, "--answer-timeout", "0"),
		"--buffer 0 must be above":          append(good, "--buffer", "0"),
		"--max-jump":                        append(good, "--max-jump", "99999999999999999"),
		"--unknown-status 7":                append(good, "--unknown-status", "7"),
		"is no loopback address":            append(good, "--admin", "0.0.0.0:0"),
		"missing port":                      append(good, "--admin", "localhost"),
	} {
		code, out, stderr := b.run(t, append([]string{"gate", "proxy"}, args...)...)
		require.Equal(t, 2, code, want)
		require.Empty(t, out)
		require.Contains(t, stderr, want)
	}
	require.NoFileExists(t, journal)
	code, _, stderr := b.run(t, append([]string{"gate", "proxy", "--listen", "nowhere.invalid:x"}, good...)...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "--listen")
	code, _, stderr = b.run(t, "gate", "proxy", "flights", "--admin", "127.0.0.1:1")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is it running")
}

// gateProxy is a running gate proxy.
type gateProxy struct {
	process    *os.Process
	ended      chan error
	url, admin string
}

func (b gateBinary) startProxy(t *testing.T, upstream, journal string) *gateProxy {
	t.Helper()
	cmd := exec.Command(string(b), "gate", "proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", upstream,
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

// slowService holds each write with the body "slow" until it is released.
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

// The proxy is killed while a request is at work in the service. Started again,
// it must not let a newer holder in before an operator decides.
func (b gateBinary) testProxyKilled(t *testing.T) {
	upstream, arrived, release := slowService(t)
	journal := filepath.Join(t.TempDir(), "journal.db")
	first := b.startProxy(t, upstream, journal)
	require.NoError(t, first.put(t, 5, "quick"))
	require.ErrorIs(t, first.put(t, 4, "quick"), fencing.ErrStale)
	broken := make(chan error, 1)
	go func() { broken <- first.put(t, 6, "slow") }()
	<-arrived
	require.NoError(t, first.process.Kill())
	require.Error(t, <-broken)
	<-first.ended

	second := b.startProxy(t, upstream, journal)
	err := second.put(t, 7, "quick")
	require.ErrorContains(t, err, "503")
	require.ErrorContains(t, err, "leased gate proxy reopen")
	code, out, _ := b.run(t, "gate", "proxy", "flights", "--admin", second.admin)
	require.Zero(t, code)
	require.Contains(t, out, "orders/42")
	require.Contains(t, out, "the proxy ended while the request was in flight")
	code, out, _ = b.run(t, "gate", "proxy", "flights", "--json", "--admin", second.admin)
	require.Zero(t, code)
	require.Contains(t, out, `"token":6`)

	close(release) // the operator has looked: the request is over
	code, _, stderr := b.run(t, "gate", "proxy", "reopen", "orders/43", "--admin", second.admin)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "404")
	code, out, _ = b.run(t, "gate", "proxy", "reopen", "orders/42", "--admin", second.admin)
	require.Zero(t, code)
	require.Contains(t, out, "orders/42 is open")
	require.ErrorIs(t, second.put(t, 5, "quick"), fencing.ErrStale, "the mark of the killed request counts")
	require.NoError(t, second.put(t, 7, "quick"))
}

// SIGTERM waits for the answer, and leaves nothing closed.
func (b gateBinary) testProxyStopped(t *testing.T) {
	upstream, arrived, release := slowService(t)
	journal := filepath.Join(t.TempDir(), "journal.db")
	first := b.startProxy(t, upstream, journal)
	answered := make(chan error, 1)
	go func() { answered <- first.put(t, 6, "slow") }()
	<-arrived
	require.NoError(t, first.process.Signal(syscall.SIGTERM))
	close(release)
	require.NoError(t, <-answered)
	require.NoError(t, <-first.ended)
	second := b.startProxy(t, upstream, journal)
	require.NoError(t, second.put(t, 7, "quick"))
}

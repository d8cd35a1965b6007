package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server/httpapi"
	"github.com/leased-project/leased/internal/wire"
)

// health runs leased health, and returns the exit code and the text that it prints or
// fails with.
func health(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	var out strings.Builder
	root := newRoot()
	root.SetArgs(append([]string{"health"}, args...))
	root.SetOut(&out)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(t.Context()); err != nil {
		code, _ = explain(err)
		return code, err.Error()
	}
	return 0, out.String()
}

// A probe that is not answered with 200 fails with the code of an unavailable service,
// and says why.
func TestHealthOfAProbe(t *testing.T) {
	server := func(h http.Handler) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	ready := server(httpapi.Probes(func(context.Context) (bool, string) { return true, "" }))
	notReady := server(httpapi.Probes(func(context.Context) (bool, string) { return false, "there is no leader" }))
	other := server(http.NotFoundHandler())
	elsewhere := server(http.RedirectHandler("http://"+ready+"/livez", http.StatusFound))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := listener.Addr().String()
	require.NoError(t, listener.Close())
	_, port, err := net.SplitHostPort(ready)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		args []string
		code int
		text string
	}{
		"alive":            {[]string{"--probe", ready}, 0, ready + ": ok\n"},
		"ready":            {[]string{"--probe", ready, "--ready"}, 0, ready + ": ok\n"},
		"alive, not ready": {[]string{"--probe", notReady}, 0, notReady + ": ok\n"},
		"not ready": {[]string{"--probe", notReady, "--ready"}, wire.ExitUnavailable,
			"is not ready: there is no leader"},
		"another server":      {[]string{"--probe", other}, wire.ExitUnavailable, "is this its probe-listen address"},
		"redirect":            {[]string{"--probe", elsewhere}, wire.ExitUnavailable, "302"},
		"nobody listens":      {[]string{"--probe", closed}, wire.ExitUnavailable, "connection refused"},
		"no port":             {[]string{"--probe", "localhost"}, wire.ExitUsage, "must be HOST:PORT"},
		"API, nobody listens": {[]string{"--endpoint", closed}, wire.ExitUnavailable, "connection refused"},
		"all addresses":       {[]string{"--probe", ":" + port}, 0, "ok"},
		"unspecified address": {[]string{"--probe", "0.0.0.0:" + port}, 0, "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			code, text := health(t, c.args...)
			require.Equal(t, c.code, code, text)
			require.Contains(t, text, c.text)
		})
	}
	t.Run("from the environment", func(t *testing.T) {
		t.Setenv(probeVariable, notReady)
		code, _ := health(t, "--ready")
		require.Equal(t, wire.ExitUnavailable, code)
		code, text := health(t, "--endpoint", closed)
		require.Equal(t, wire.ExitUnavailable, code)
		require.Contains(t, text, closed, "a given endpoint is asked")
	})
}

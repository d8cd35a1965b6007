package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/watch"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// patience ends a test that hangs. It is no measure of speed.
const patience = time.Minute

var quiet = slog.New(slog.DiscardHandler)

func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline.C:
			require.FailNow(t, "never: "+what)
		}
	}
}

// startOne starts a server on a cluster of one, in this process.
func startOne(t testing.TB, change ...func(*server.Config)) *server.Server {
	t.Helper()
	hub := watch.NewHub()
	node, err := raftstore.Open(raftstore.Config{ID: "n1", Dir: t.TempDir(), Address: "127.0.0.1:0", Logger: quiet, Observer: hub})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	require.NoError(t, node.Bootstrap())
	config := server.Config{Node: node, Hub: hub, Logger: quiet, Version: "test"}
	for _, f := range change {
		f(&config)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.New(config, listener)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-done)
	})
	eventually(t, "a leader", node.Leads)
	return s
}

// post makes a JSON call.
func post(t testing.TB, address, path, body string) (code int, answer map[string]any) {
	t.Helper()
	response, err := http.Post("http://"+address+path, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &answer), string(text))
	return response.StatusCode, answer
}

// newPost is a JSON call to be made.
func newPost(t testing.TB, address, path, body string) *http.Request {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://"+address+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	return request
}

func errorIsLost(err error) bool { return errors.Is(err, engine.ErrLost) }

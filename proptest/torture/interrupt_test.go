//go:build linux

package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// listener closes seen at the first line that contains a word.
type listener struct {
	word string
	once sync.Once
	seen chan struct{}
}

func (l *listener) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(l.word)) {
		l.once.Do(func() { close(l.seen) })
	}
	return len(p), nil
}

// An interrupted run does not wait for a storage that does not recover.
func TestInterruptDoesNotWait(t *testing.T) {
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	progress := &listener{word: "operations", seen: make(chan struct{})}
	config := Config{Duration: time.Hour, Seed: 1, Workers: 6, Dir: t.TempDir(), Progress: progress,
		Leased: program(t), Worker: []string{os.Args[0], "worker"}}
	ended := make(chan error, 1)
	go func() {
		_, err := Run(ctx, config)
		ended <- err
	}()
	select {
	case <-progress.seen:
	case err := <-ended:
		require.NoError(t, err, "the run ended by itself")
	}
	storage := child(t, "/postgres ")
	require.NotZero(t, storage, "PostgreSQL runs")
	require.NoError(t, syscall.Kill(storage, syscall.SIGQUIT)) // immediate shutdown
	require.True(t, until(ctx, startLimit, func() bool { return child(t, "/postgres ") == 0 }))
	cancel(why)
	select {
	case err := <-ended:
		require.ErrorIs(t, err, why)
	case <-time.After(startLimit):
		require.ErrorIs(t, <-ended, why) // leave no processes behind
		require.Fail(t, "the interrupted run waited for the storage")
	}
}

// child returns the id of a child process whose command line contains words, or 0.
func child(t *testing.T, words string) int {
	t.Helper()
	states, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range states {
		state, _ := os.ReadFile(path) // it may have ended
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		_, rest, _ := strings.Cut(string(state), ") ") // after its name
		var status string
		var number, parent int
		_, _ = fmt.Sscan(string(state), &number)
		_, _ = fmt.Sscan(rest, &status, &parent)
		if parent == os.Getpid() && strings.Contains(string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))), words) {
			return number
		}
	}
	return 0
}

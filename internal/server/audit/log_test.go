//go:build unix

package audit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/testserver"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB, path string) *audit.Log {
	t.Helper()
	l, err := audit.Open(audit.Config{Path: path, Member: "a", Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// read returns the records of a file.
func read(t *testing.T, path string) (records []audit.Record) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var r audit.Record
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		records = append(records, r)
	}
	return records
}

func TestLinesHaveAllFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path)
	ctx := audit.WithCaller(context.Background(), &audit.Caller{Address: "192.0.2.1:5", Via: "192.0.2.9:1", User: "alice"})
	l.Write(ctx, audit.Record{Event: audit.Grant, Resources: []string{"x", "y"}, Holder: "h", Token: 7,
		Mode: "correctness"})
	l.Close()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	records := read(t, path)
	require.Len(t, records, 1)
	require.False(t, records[0].Time.IsZero())
	require.Equal(t, time.UTC, records[0].Time.Location())
	records[0].Time = time.Time{}
	require.Equal(t, audit.Record{Member: "a", Event: audit.Grant, User: "alice", Address: "192.0.2.1:5",
		Via: "192.0.2.9:1", Holder: "h",
		Resources: []string{"x", "y"}, Token: 7, Mode: "correctness"}, records[0])

	again := open(t, path)
	again.Write(ctx, audit.Record{Event: audit.Break})
	again.Close()
	require.Len(t, read(t, path), 2, "an existing file is appended to")
	again.Close()
	again.Write(ctx, audit.Record{Event: audit.Break})
	again.Reopen()
	require.Len(t, read(t, path), 2)
}

// A name that is a secret by mistake does not get into the file.
func TestNoSecretInALine(t *testing.T) {
	path, text := filepath.Join(t.TempDir(), "audit.log"), secret.New()
	l := open(t, path)
	for _, r := range []audit.Record{{Holder: text}, {Resources: []string{"a" + text}}, {Detail: `"Bearer ` + text + `"`},
		{Subject: text}, {Mode: text}} {
		r.Event = audit.Grant
		l.Write(context.Background(), r)
	}
	l.Close()
	require.Len(t, read(t, path), 5)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(content), text[10:])
}

// Lines that are written while the file is renamed and reopened are all there, once.
func TestRotationLosesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	l := open(t, path)
	const rounds, each = 20, 100
	for round := range rounds {
		for i := range each {
			l.Write(context.Background(), audit.Record{Event: audit.Grant, Token: uint64(round*each + i + 1)})
		}
		require.NoError(t, os.Rename(path, filepath.Join(dir, fmt.Sprint(round))))
		l.Reopen()
		testserver.Eventually(t, "the file exists", func() bool { _, err := os.Stat(path); return err == nil })
	}
	l.Close()
	next := uint64(1)
	for round := range rounds + 1 {
		name := filepath.Join(dir, fmt.Sprint(round))
		if round == rounds {
			name = path
		}
		for _, r := range read(t, name) {
			require.Equal(t, next, r.Token)
			require.LessOrEqual(t, r.Token, uint64(round+1)*each,
				"the line was written after the rotation, and is in the old file")
			next++
		}
	}
	require.EqualValues(t, rounds*each+1, next)
	require.Zero(t, l.Lost())
}

// A reader of a pipe that does not read blocks the writer, but not Write. When it
// reads again, each lost line is counted, and the counts are in the file.
func TestBlockedFileLosesLinesAndCountsThem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	var logged strings.Builder
	warned := make(chan struct{})
	l, err := audit.Open(audit.Config{Path: path, Member: "a",
		Logger: slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
			logged.Write(p)
			close(warned)
			return len(p), nil
		}), nil))})
	require.NoError(t, err)
	const total = 50_000
	for i := range total {
		l.Write(context.Background(), audit.Record{Event: audit.Grant, Token: uint64(i + 1)})
	}
	lost := l.Lost()
	require.NotZero(t, lost)
	testserver.Receive(t, warned)
	require.Contains(t, logged.String(), "lost lines of the audit log")

	done := make(chan [2]uint64)
	go func() {
		var written, reported, last uint64
		lines := bufio.NewScanner(pipe)
		for last != total+1 && lines.Scan() {
			var r audit.Record
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Error(err)
			}
			if r.Event == audit.LinesLost {
				reported += r.Lost
				continue
			}
			if r.Token <= last {
				t.Errorf("token %d after %d", r.Token, last)
			}
			last = r.Token
			written++
		}
		done <- [2]uint64{written, reported}
	}()
	testserver.Eventually(t, "there is room in the queue", func() bool {
		before := l.Lost()
		l.Write(context.Background(), audit.Record{Event: audit.Grant, Token: total + 1})
		return l.Lost() == before
	})
	result := testserver.Receive(t, done)
	require.NoError(t, pipe.Close())
	l.Close()
	require.GreaterOrEqual(t, l.Lost(), lost)
	require.Equal(t, l.Lost(), result[1], "every lost line is reported in the file")
	require.Equal(t, total+1-lost, result[0], "all other lines are in the file")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Close returns although the file takes nothing.
func TestCloseOfABlockedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer pipe.Close()
	l := open(t, path)
	for range 20_000 {
		l.Write(context.Background(), audit.Record{Event: audit.Grant})
	}
	l.Close()
}

// Refusals, which anybody can cause, leave room for other lines.
func TestRefusalsDoNotDisplaceOtherLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	l := open(t, path)
	for range 50_000 {
		l.Write(context.Background(), audit.Record{Event: audit.Unauthenticated})
	}
	lost := l.Lost()
	require.NotZero(t, lost)
	for range 1000 {
		l.Write(context.Background(), audit.Record{Event: audit.Break})
	}
	require.Equal(t, lost, l.Lost())
	go func() { _, _ = io.Copy(io.Discard, pipe) }()
	l.Close()
	require.NoError(t, pipe.Close())
}

// A file that cannot be opened is reported at the start, and does not end a running
// log.
func TestUnusableFile(t *testing.T) {
	dir := t.TempDir()
	_, err := audit.Open(audit.Config{Path: dir, Logger: quiet})
	require.ErrorContains(t, err, "open the audit log")
	folder := filepath.Join(dir, "logs")
	require.NoError(t, os.Mkdir(folder, 0o700))
	l := open(t, filepath.Join(folder, "audit.log"))
	require.NoError(t, os.Rename(folder, filepath.Join(dir, "moved")))
	l.Reopen()
	l.Write(context.Background(), audit.Record{Event: audit.Break})
	l.Close()
	require.Len(t, read(t, filepath.Join(dir, "moved", "audit.log")), 1)
}

// A file that ends with a part of a line does not lose the next line too, neither at the start nor after SIGHUP.
func TestFileEndsWithAPartOfALine(t *testing.T) {
	for name, reopen := range map[string]bool{"start": false, "SIGHUP": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			var l *audit.Log
			if reopen {
				l = open(t, path)
				require.NoError(t, os.Rename(path, path+".1"))
			}
			const part = `{"event":"gr`
			require.NoError(t, os.WriteFile(path, []byte(part), 0o600))
			if reopen {
				l.Reopen()
			} else {
				l = open(t, path)
			}
			var lines []string
			testserver.Eventually(t, "a line is in the file", func() bool {
				l.Write(context.Background(), audit.Record{Event: audit.Break})
				text, err := os.ReadFile(path)
				lines = strings.Split(string(text), "\n")
				return err == nil && len(lines) > 2
			})
			l.Close()
			require.Equal(t, part, lines[0])
		})
	}
}

// BenchmarkWrite measures one line on the path of a caller, with the writer beside it.
func BenchmarkWrite(b *testing.B) {
	ctx := audit.WithCaller(context.Background(), &audit.Caller{Address: "192.0.2.1:5"})
	for name, path := range map[string]string{"off": "", "on": filepath.Join(b.TempDir(), "audit.log")} {
		b.Run(name, func(b *testing.B) {
			l := open(b, path)
			for b.Loop() {
				l.Write(ctx, audit.Record{Event: audit.Grant, Resources: []string{"jobs/7"}, Token: 7, Mode: "correctness",
					Holder: "host:12"})
			}
			b.ReportMetric(float64(l.Lost())/float64(b.N), "lost/op")
		})
	}
}

// docs/CONFIGURATION.md lists every event.
func TestEventsAreDocumented(t *testing.T) {
	source, err := os.ReadFile("record.go")
	require.NoError(t, err)
	page, err := os.ReadFile("../../../docs/CONFIGURATION.md")
	require.NoError(t, err)
	events := regexp.MustCompile(`Event = "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1)
	require.Greater(t, len(events), 20)
	for _, event := range events {
		require.Contains(t, string(page), "`"+event[1]+"`")
	}
}

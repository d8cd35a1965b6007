package logtest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
)

// Log is a slog.Handler that keeps all records. Its methods may be called concurrently.
type Log struct {
	level  slog.Level
	store  *store
	preset []slog.Attr
}

var _ slog.Handler = (*Log)(nil)

// store has the lines of a Log and of those derived from it.
type store struct {
	mu    sync.Mutex
	lines []Line
}

// Line is one record.
type Line struct {
	Level   slog.Level
	Message string
	Values  map[string]string // by key
}

// String returns the line as text.
func (l Line) String() string {
	text := fmt.Sprintf("%s %q", l.Level, l.Message)
	for key, value := range l.Values {
		text += fmt.Sprintf(" %s=%q", key, value)
	}
	return text
}

// New returns a Log of the records at this level and above.
func New(level slog.Level) *Log { return &Log{level: level, store: &store{}} }

// Logger returns a logger that writes to the log.
func (l *Log) Logger() *slog.Logger { return slog.New(l) }

// Enabled implements slog.Handler.
func (l *Log) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }

// Handle implements slog.Handler.
func (l *Log) Handle(_ context.Context, r slog.Record) error {
	line := Line{Level: r.Level, Message: r.Message, Values: map[string]string{}}
	for _, a := range l.preset {
		line.Values[a.Key] = a.Value.String()
	}
	r.Attrs(func(a slog.Attr) bool {
		line.Values[a.Key] = a.Value.String()
		return true
	})
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.store.lines = append(l.store.lines, line)
	return nil
}

// WithAttrs implements slog.Handler.
func (l *Log) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Log{level: l.level, store: l.store, preset: append(slices.Clone(l.preset), attrs...)}
}

// WithGroup implements slog.Handler. Groups are ignored.
func (l *Log) WithGroup(string) slog.Handler { return l }

// Lines returns the lines with this message in order, all lines if it is empty.
func (l *Log) Lines(message string) []Line {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	var found []Line
	for _, line := range l.store.lines {
		if message == "" || line.Message == message {
			found = append(found, line)
		}
	}
	return found
}

// Count returns the number of lines with this message.
func (l *Log) Count(message string) int { return len(l.Lines(message)) }

// Once returns the only line with this message, and fails the test if there is not
// exactly one.
func (l *Log) Once(t testing.TB, message string) Line {
	t.Helper()
	found := l.Lines(message)
	if len(found) != 1 {
		t.Fatalf("%d lines have the message %q, want 1; all lines: %v", len(found), message, l.Lines(""))
	}
	return found[0]
}

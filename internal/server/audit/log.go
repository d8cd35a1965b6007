package audit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// queueSize is the number of lines that wait for the file.
	queueSize = 1 << 13
	// closeTimeout bounds the time that Close waits for the file.
	closeTimeout = 2 * time.Second
	// warnInterval is the least time between two warnings about lost lines.
	warnInterval = time.Minute
)

// Config has the parts of a Log.
type Config struct {
	// Path is the file, "-" for the standard output, or "" for none. A new file gets
	// the mode 0600.
	Path string
	// Member is the id of this member.
	Member string
	// Clock gives the time of a line. Default: engine.MonotonicClock.
	Clock engine.Clock
	// Logger is slog.Default by default.
	Logger *slog.Logger
}

// Log records events. Without a file it still writes them to the ordinary log, at the
// level debug.
type Log struct {
	config Config
	queue  chan Record // nil without a file
	reopen chan struct{}
	stop   chan struct{}
	close  sync.Once
	done   chan struct{} // closed when the writer has ended
	writer writer
	warns  atomic.Bool // warn is running

	lost       atomic.Uint64 // all lost lines
	unreported atomic.Uint64 // those that the file does not mention yet
}

// Open opens the file of the log.
func Open(config Config) (*Log, error) {
	if config.Clock == nil {
		config.Clock = engine.MonotonicClock() // only its wall-clock time is used
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	l := &Log{config: config, reopen: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	if config.Path == "" {
		close(l.done)
		return l, nil
	}
	file, err := openFile(config.Path)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	l.queue = make(chan Record, queueSize)
	l.writer.file, l.writer.torn = file, endsWithinLine(file)
	go l.run()
	return l, nil
}

// Write records an event and returns at once. If the queue is full, the line is lost
// and counted. Refusals may use only half of the queue, so that a caller without any
// right cannot displace other lines.
func (l *Log) Write(ctx context.Context, r Record) {
	if !l.Enabled(ctx) {
		return
	}
	r.Time, r.Member = l.config.Clock.Now().Time().UTC(), l.config.Member
	if c, ok := ctx.Value(callerKey{}).(*Caller); ok {
		r.Address, r.Via, r.User = c.Address, c.Via, c.User
	}
	if l.config.Logger.Enabled(ctx, slog.LevelDebug) {
		l.config.Logger.LogAttrs(ctx, slog.LevelDebug, "audit", r.attributes()...)
	}
	if l.queue == nil {
		return
	}
	if r.Event.isRefusal() && len(l.queue) >= queueSize/2 {
		l.lose(1)
		return
	}
	select {
	case l.queue <- r:
	default:
		l.lose(1)
	}
}

// Enabled reports whether Write records anything. If not, callers need not describe an
// event.
func (l *Log) Enabled(ctx context.Context) bool {
	return l.queue != nil || l.config.Logger.Enabled(ctx, slog.LevelDebug)
}

// lose counts lost lines, and starts to warn of them.
func (l *Log) lose(n uint64) {
	l.lost.Add(n)
	l.unreported.Add(n)
	if l.warns.CompareAndSwap(false, true) {
		go l.warn()
	}
}

// Lost returns the number of lines that were lost since the log was opened.
func (l *Log) Lost() uint64 { return l.lost.Load() }

// Reopen makes the writer close the file and open it again, after a program such as
// logrotate has renamed it. It returns at once. If the file cannot be opened, the
// log stays with the old one and says so in the ordinary log.
func (l *Log) Reopen() {
	select {
	case l.reopen <- struct{}{}:
	default: // the writer has yet to see an earlier request
	}
}

// Close writes the lines that wait, syncs the file and closes it. If the file does
// not take the lines in time, Close does not wait for them.
func (l *Log) Close() {
	l.close.Do(func() { close(l.stop) })
	if l.queue == nil {
		return
	}
	select {
	case <-l.done:
	case <-time.After(closeTimeout):
	}
}

// warn reports lost lines in the ordinary log, once in warnInterval while further ones are lost.
func (l *Log) warn() {
	reported := uint64(0)
	for l.Lost() != reported {
		reported = l.Lost()
		l.config.Logger.Warn("lost lines of the audit log", "file", l.config.Path, "lost", reported, "error",
			l.writer.failure())
		select {
		case <-time.After(warnInterval):
		case <-l.stop:
			return
		}
	}
	l.warns.Store(false)
	if l.Lost() != reported && l.warns.CompareAndSwap(false, true) { // a line was lost since the last look
		go l.warn()
	}
}

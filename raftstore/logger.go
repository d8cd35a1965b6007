package raftstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// repeatInterval is the least time between two equal messages of the Raft library,
	// which repeats a warning many times a second while a peer is unreachable.
	repeatInterval = time.Minute
	// maxRepeated bounds the messages that are remembered.
	maxRepeated = 256
)

// engineLogger forwards log messages of the Raft library to slog. Its info messages
// become debug messages: the node logs changes of leadership and membership itself.
func engineLogger(logger *slog.Logger, clock engine.Clock) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Output: io.Discard, Level: hclog.Off})
	l.RegisterSink(&slogSink{logger: logger, clock: clock, last: map[string]*repeated{}})
	return l
}

type slogSink struct {
	logger *slog.Logger
	clock  engine.Clock

	mu   sync.Mutex
	last map[string]*repeated // by message and peer
}

// repeated is a message that was logged before.
type repeated struct {
	logged  engine.Instant
	skipped int // since then
}

var levels = map[hclog.Level]slog.Level{
	hclog.Trace: slog.LevelDebug - 4, hclog.Debug: slog.LevelDebug, hclog.Info: slog.LevelDebug,
	hclog.Warn: slog.LevelWarn, hclog.Error: slog.LevelError,
}

// peerKeys are the keys under which the Raft library and the transport name a peer.
var peerKeys = map[string]bool{"peer": true, "server-id": true, "target": true, "remote": true}

// expected are warnings of the Raft library about the normal start of a new member.
var expected = map[string]bool{"no known peers, aborting election": true, "failed to get previous log": true,
	"appendEntries rejected, sending older logs": true}

// Accept implements hclog.SinkAdapter.
func (s *slogSink) Accept(name string, level hclog.Level, message string, args ...any) {
	to := levels[level]
	if expected[message] {
		to = slog.LevelDebug
	}
	if !s.logger.Enabled(context.Background(), to) {
		return
	}
	peer := ""
	for i, arg := range args {
		if f, ok := arg.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		if key, ok := arg.(string); ok && i%2 == 0 && peerKeys[key] && i+1 < len(args) {
			peer = fmt.Sprint(args[i+1])
		}
	}
	if to >= slog.LevelWarn {
		if peer != "" { // an unreachable peer is no failure of this node
			to = slog.LevelWarn
		}
		skipped, ok := s.admit(message + " " + peer)
		if !ok {
			return
		}
		if skipped > 0 {
			args = append(args, "notLogged", skipped)
		}
	}
	s.logger.With("part", name).Log(context.Background(), to, message, args...)
}

// admit reports whether a message may be logged, and how many equal ones were not.
func (s *slogSink) admit(key string) (skipped int, ok bool) {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.last[key]
	switch {
	case r == nil:
		if len(s.last) == maxRepeated {
			clear(s.last)
		}
		s.last[key] = &repeated{logged: now}
		return 0, true
	case now.Since(r.logged) < repeatInterval:
		r.skipped++
		return 0, false
	}
	skipped = r.skipped
	r.logged, r.skipped = now, 0
	return skipped, true
}

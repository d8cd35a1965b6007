package raftstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// engineLogger forwards log messages of the Raft library to slog.
func engineLogger(logger *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Output: io.Discard, Level: hclog.Off})
	l.RegisterSink(&slogSink{logger: logger})
	return l
}

type slogSink struct{ logger *slog.Logger }

var levels = map[hclog.Level]slog.Level{
	hclog.Trace: slog.LevelDebug - 4, hclog.Debug: slog.LevelDebug, hclog.Info: slog.LevelInfo, hclog.Warn: slog.LevelWarn, hclog.Error: slog.LevelError,
}

// Accept implements hclog.SinkAdapter.
func (s *slogSink) Accept(name string, level hclog.Level, message string, args ...any) {
	to := levels[level]
	if !s.logger.Enabled(context.Background(), to) {
		return
	}
	for i, arg := range args {
		if f, ok := arg.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	s.logger.With("part", name).Log(context.Background(), to, message, args...)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/member"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
)

func setUpServe(c *cobra.Command) {
	var file string
	var printConfig bool
	fromEnvironment(c.Flags(), &file, "config", "", "YAML file with the settings")
	c.Flags().BoolVar(&printConfig, "print-config", false, "print every setting with its source, also if some are "+
		"invalid, and exit")
	settings.Flags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		load := func() (*settings.Settings, error) { return settings.Load(c.Flags(), os.LookupEnv, file) }
		s, err := load()
		var unwritten error
		if printConfig { // also of invalid settings, to show where they come from
			_, unwritten = fmt.Fprint(c.OutOrStdout(), s.Print())
			printUnknownVariables(c.ErrOrStderr(), os.Environ())
		}
		if err != nil {
			return usageError(err)
		}
		if printConfig {
			return unwritten
		}
		defer runtime.KeepAlive(limitGarbage())
		logger := newLogger(s)
		for _, unknown := range unknownVariables(os.Environ()) {
			logger.Warn("unknown environment variable", "variable", unknown.name, "hint", unknown.hint())
		}
		ctx, stop := untilInterrupted(c.Context())
		defer stop()
		reload := make(chan os.Signal, 1)
		signal.Notify(reload, syscall.SIGHUP)
		m, err := start(ctx, s, logger)
		if err != nil {
			return err
		}
		logger = logger.With("id", s.ID) // a member adds it itself
		logger.Info("serving", "api", m.Address(), "raft", m.Node().Address())
		notifySystem("READY=1")
		err = waitForEnd(ctx, m, logger, reload, load)
		notifySystem("STOPPING=1")
		if stopErr := m.Stop(); err == nil {
			err = stopErr
		}
		return err
	}
}

// start starts a member. The end of ctx ends it even while it starts.
func start(ctx context.Context, s *settings.Settings, logger *slog.Logger) (*member.Member, error) {
	slog.SetDefault(logger)
	limitConnections(s, logger)
	m, err := member.Start(ctx, s, versionText(), logger)
	switch {
	case ctx.Err() != nil:
		if m != nil {
			_ = m.Stop()
		}
		return nil, context.Cause(ctx)
	case errors.Is(err, settings.ErrInvalid):
		return nil, usageError(fmt.Errorf("start the member: %w", err))
	case err != nil:
		return nil, &codeError{wire.ExitError, fmt.Errorf("start the member: %w", err)}
	}
	return m, nil
}

// limitConnections bounds the connections to the API by a third of the files that the process may open: a connection
// can need a second one to the leader, and a member that cannot open a file of its log or of a snapshot stops.
func limitConnections(s *settings.Settings, logger *slog.Logger) {
	most := openFiles() / 3
	if uint64(s.Limits.Connections) <= most {
		return
	}
	logger.Info("fewer connections than limit-connections are accepted: raise the limit of open files (ulimit -n)",
		"limit-connections", s.Limits.Connections, "accepted", most)
	s.Limits.Connections = int(most)
}

// waitForEnd waits until a signal, which ends ctx, or a failure ends the member. On reload it reads the
// settings again.
func waitForEnd(ctx context.Context, m *member.Member, logger *slog.Logger, reload <-chan os.Signal,
	load func() (*settings.Settings, error)) error {
	for {
		select {
		case <-ctx.Done():
			code, _ := explain(context.Cause(ctx))
			logger.Info("stopping", "signal", syscall.Signal(code-exitSignal).String())
			return nil
		case err := <-m.Failed():
			return err
		case <-reload:
		}
		m.ReopenAudit() // also if the settings are invalid
		fresh, err := load()
		if err == nil {
			err = m.Reload(fresh)
		}
		if err != nil {
			logger.Error("reload failed; the old settings stay in effect", "error", err)
			continue
		}
		logger.Info("reloaded the certificate, the CA, the users, the secret and the signing key; " +
			"other settings need a restart")
	}
}

// hideSecrets removes secrets from log records.
func hideSecrets(_ []string, a slog.Attr) slog.Attr {
	if text := a.Value.String(); secret.In(text) {
		a.Value = slog.StringValue(secret.Hide(text))
	}
	return a
}

func newLogger(s *settings.Settings) *slog.Logger {
	options := &slog.HandlerOptions{Level: s.LogLevel, ReplaceAttr: hideSecrets}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

// notifySystem reports the state of the service to systemd if NOTIFY_SOCKET is
// set, see sd_notify(3). It ignores errors.
func notifySystem(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if strings.HasPrefix(name, "@") {
		name = "\x00" + name[1:] // an abstract socket
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}

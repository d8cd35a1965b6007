package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/member"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
)

// serveExample starts three members on one machine. A test runs it.
const serveExample = `  # Three members on one machine, each in its own terminal:
  leased serve --id a --data data/a --listen 127.0.0.1:7420 --raft-listen 127.0.0.1:7421 --bootstrap-expect 3 --join 127.0.0.1:7420,127.0.0.1:7430,127.0.0.1:7440
  leased serve --id b --data data/b --listen 127.0.0.1:7430 --raft-listen 127.0.0.1:7431 --bootstrap-expect 3 --join 127.0.0.1:7420,127.0.0.1:7430,127.0.0.1:7440
  leased serve --id c --data data/c --listen 127.0.0.1:7440 --raft-listen 127.0.0.1:7441 --bootstrap-expect 3 --join 127.0.0.1:7420,127.0.0.1:7430,127.0.0.1:7440

  # Read a file and print the resulting settings:
  leased serve --config /etc/leased.yaml --print-config`

func newServe() *cobra.Command {
	var file string
	var printConfig bool
	c := &cobra.Command{Use: "serve", Short: "Run a member of the service",
		Long: "Run a member of the service. Each setting has one name, as a flag (--raft-listen), an environment\n" +
			"variable (LEASED_RAFT_LISTEN) and a key of the YAML file (raft-listen). Flags override the environment,\n" +
			"which overrides the file. The file may also contain the initial policies of\n" +
			"a new cluster, see leased policy.\n\n" +
			"SIGHUP reloads the certificate, the CA, the users, the member's secret, and the signing key, and\n" +
			"reopens the audit file. SIGTERM transfers leadership to another member, then stops this one.",
		Example: serveExample,
		Args:    cobra.NoArgs}
	c.Flags().StringVar(&file, "config", fromEnv("LEASED_CONFIG", ""), "YAML file with the settings (LEASED_CONFIG)")
	c.Flags().BoolVar(&printConfig, "print-config", false, "print every setting with its source, also if some are invalid, and exit")
	settings.Flags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		load := func() (*settings.Settings, error) { return settings.Load(c.Flags(), os.LookupEnv, file) }
		s, err := load()
		if printConfig { // also of invalid settings, to show where they come from
			fmt.Fprint(c.OutOrStdout(), s.Print())
			printUnknownVariables(c.ErrOrStderr(), os.Environ())
		}
		if err != nil {
			return usageError(err)
		}
		if printConfig {
			return nil
		}
		logger := newLogger(s)
		for _, unknown := range unknownVariables(os.Environ()) {
			logger.Warn("unknown environment variable", "variable", unknown.name, "hint", unknown.hint())
		}
		slog.SetDefault(logger)
		signals := make(chan os.Signal, 4)
		signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, os.Interrupt)
		m, err := start(c.Context(), s, logger, signals)
		if err != nil {
			return err
		}
		logger = logger.With("id", s.ID) // a member adds it itself
		logger.Info("serving", "api", m.Address(), "raft", m.Node().Address())
		notifySystem("READY=1")
		err = waitForEnd(m, logger, signals, load)
		notifySystem("STOPPING=1")
		if stopErr := m.Stop(); err == nil {
			err = stopErr
		}
		return err
	}
	return c
}

// start starts a member. SIGINT and SIGTERM end it even while it starts.
func start(parent context.Context, s *settings.Settings, logger *slog.Logger, signals chan os.Signal) (*member.Member, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	started := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case signal := <-signals:
				if signal != syscall.SIGHUP { // the files have just been read
					cancel(interrupted(signal))
				}
			case <-started:
				return
			}
		}
	}()
	m, err := member.Start(ctx, s, versionText(), logger)
	close(started)
	<-watched
	if cause := context.Cause(ctx); cause != nil {
		if m != nil {
			_ = m.Stop()
		}
		return nil, cause
	}
	if errors.Is(err, settings.ErrInvalid) {
		return nil, usageError(fmt.Errorf("start the member: %w", err))
	}
	if err != nil {
		return nil, &codeError{wire.ExitError, fmt.Errorf("start the member: %w", err)}
	}
	return m, nil
}

// waitForEnd waits until a signal or a failure ends the member. On SIGHUP it
// reloads the settings, unless load is nil.
func waitForEnd(m *member.Member, logger *slog.Logger, signals <-chan os.Signal, load func() (*settings.Settings, error)) error {
	for {
		select {
		case s := <-signals:
			if s != syscall.SIGHUP || load == nil {
				logger.Info("stopping", "signal", s.String())
				return nil
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
			logger.Info("reloaded the certificate, the CA, the users, the secret and the signing key; other settings need a restart")
		case err := <-m.Failed():
			return err
		}
	}
}

// hideSecrets removes secrets from log records.
func hideSecrets(_ []string, a slog.Attr) slog.Attr {
	switch value := a.Value.Any().(type) {
	case string:
		if secret.In(value) {
			a.Value = slog.StringValue(secret.Hide(value))
		}
	case error:
		if text := value.Error(); secret.In(text) {
			a.Value = slog.StringValue(secret.Hide(text))
		}
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

//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/pausedemo"
	"github.com/leased-project/leased/raftstore"
)

func newDemo() *cobra.Command {
	c := &cobra.Command{Use: "demo", Short: "Show why a lock needs a gate, and put a load on a service", Args: cobra.NoArgs}
	pause := &cobra.Command{Use: "pause", Short: "Show what a paused holder's late write does, without a gate and with one", Args: cobra.NoArgs,
		Long: "Two processes update one account under a lock. One is stopped with SIGSTOP between its read and its\n" +
			"write, until its lease has expired and the other one has written. Without a gate the late write destroys\n" +
			"the other update; with a gate it is rejected. The demo starts its own service in a temporary folder.",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := untilInterrupted(c.Context())
			defer stop()
			return showPause(ctx, c.OutOrStdout())
		}}
	holder := &cobra.Command{Use: "holder", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return pausedemo.Hold(c.Context(), os.Stdin, os.Stdout) }}
	c.AddCommand(pause, newDemoLoad(), holder)
	return c
}

// showPause starts a service and runs the demo with it.
func showPause(ctx context.Context, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the path of leased: %w", err)
	}
	dir, err := os.MkdirTemp("", "leased-demo-")
	if err != nil {
		return fmt.Errorf("create a temporary folder: %w", err)
	}
	defer os.RemoveAll(dir)
	f := &devFlags{listen: "127.0.0.1:0", raft: "127.0.0.1:0", logStore: string(raftstore.DefaultLogStore), logLevel: "error"}
	s, err := f.settings(dir, nil)
	if err != nil {
		return err
	}
	logger := newLogger(s)
	slog.SetDefault(logger)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	m, err := start(ctx, s, logger, signals)
	if err != nil {
		return err
	}
	defer func() { _ = m.Stop() }()
	if err := awaitLeader(m, signals); err != nil {
		return err
	}
	demo := &pausedemo.Demo{Endpoint: m.Address(), Dir: filepath.Join(dir, "store"), Holder: []string{self, "demo", "holder"}, Out: out}
	err = demo.Run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

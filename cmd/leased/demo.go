//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/pausedemo"
	"github.com/leased-project/leased/cmd/leased/internal/redisfleet"
)

func newDemo() *cobra.Command {
	c := &cobra.Command{Use: "demo", Short: "Show why a lock needs a gate", Args: cobra.NoArgs}
	picture := ""
	pause := &cobra.Command{Use: "pause", Short: "A paused holder wakes up and writes: without a gate, and with one", Args: cobra.NoArgs,
		Long: "Two processes change one account under a lock. One is stopped with SIGSTOP between its read and its\n" +
			"write. The story is told twice: without a gate an update is lost, with one the late write is refused.\n" +
			"It starts a service of its own, in a temporary folder.",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := untilInterrupted(c.Context())
			defer stop()
			return showPause(ctx, c, picture)
		}}
	pause.Flags().StringVar(&picture, "picture", "", "also draw the story, as a page of HTML in this file")
	holder := &cobra.Command{Use: "holder", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return pausedemo.Hold(c.Context(), os.Stdin, os.Stdout) }}
	c.AddCommand(pause, holder)
	return c
}

// showPause starts a service for the story, and tells it.
func showPause(ctx context.Context, c *cobra.Command, picture string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "leased-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	f := &devFlags{listen: "127.0.0.1:0", raft: "127.0.0.1:0", logLevel: "error"}
	s, err := f.settings(dir, &redisfleet.Fleet{Kind: redisfleet.None})
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
	if err := awaitLead(m, signals); err != nil {
		return err
	}
	demo := &pausedemo.Demo{Endpoint: m.Address(), Dir: filepath.Join(dir, "store"), Holder: []string{self, "demo", "holder"}, Out: c.OutOrStdout()}
	if err := demo.Run(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	if picture == "" {
		return nil
	}
	if err := writePicture(picture, demo.Picture); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "\nThe picture is in %s.\n", picture)
	return err
}

// writePicture makes a file with what draw writes.
func writePicture(path string, draw func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make the picture: %w", err)
	}
	if err := errors.Join(draw(f), f.Close()); err != nil {
		return fmt.Errorf("draw the picture: %w", err)
	}
	return nil
}

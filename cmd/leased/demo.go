//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/demo"
	"github.com/leased-project/leased/raftstore"
)

func setUpDemoPause(c *cobra.Command) {
	c.RunE = interruptible(func(c *cobra.Command, _ []string) error {
		return showPause(c.Context(), c.OutOrStdout())
	})
}

// showPause starts a service and runs the demo with it.
func showPause(ctx context.Context, out io.Writer) error {
	self, err := executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "leased-demo-")
	if err != nil {
		return fmt.Errorf("create a temporary folder: %w", err)
	}
	defer os.RemoveAll(dir)
	f := &devFlags{listen: "127.0.0.1:0", raft: "127.0.0.1:0", logStore: string(raftstore.DefaultLogStore),
		logLevel: "error"}
	s, err := f.settings(dir, nil)
	if err != nil {
		return err
	}
	m, err := start(ctx, s, newLogger(s))
	if err != nil {
		return err
	}
	defer func() { _ = m.Stop() }()
	if err := awaitLeader(ctx, m); err != nil {
		return err
	}
	pause := &demo.Pause{Endpoint: m.Address(), Dir: filepath.Join(dir, "store"),
		Holder: []string{self, holderCommand}, Out: out}
	return pause.Run(ctx)
}

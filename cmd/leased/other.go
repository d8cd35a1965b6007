//go:build !unix

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newDemo() *cobra.Command {
	c := &cobra.Command{Use: "demo", Short: "Put a load on a service", Args: cobra.NoArgs} // `demo pause` needs SIGSTOP
	c.AddCommand(newDemoLoad())
	return c
}

func newRun() *cobra.Command {
	return &cobra.Command{Use: "run", Short: "Run a command under a lease (not supported on this system)",
		RunE: func(*cobra.Command, []string) error {
			return errors.New("run needs process groups and signals, which this system does not have; use `leased acquire`")
		}}
}

func newRunGuard() *cobra.Command { return &cobra.Command{Use: "run-guard", Hidden: true} }

func newRunHold() *cobra.Command { return &cobra.Command{Use: "run-hold", Hidden: true} }

// lockFolder does nothing: this system has no file locks.
func lockFolder(string) (unlock func(), err error) { return func() {}, nil }

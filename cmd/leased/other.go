//go:build !unix

package main

import (
	"errors"
	"math"
	"syscall"

	"github.com/spf13/cobra"
)

func setUpDemoPause(c *cobra.Command) {
	c.Hidden = true
	unsupported(c, "demo pause needs SIGSTOP, which this system does not have")
}

func setUpRun(c *cobra.Command) {
	c.Short += " (not supported on this system)"
	unsupported(c, "run needs process groups and signals, which this system does not have; use `leased acquire`")
}

func setUpLock(c *cobra.Command) {
	c.Hidden = true
	unsupported(c, "lock needs signals, which this system does not have; use `leased acquire`")
}

func setUpElect(c *cobra.Command) {
	c.Hidden = true
	unsupported(c, "elect needs signals, which this system does not have; use `leased acquire`")
}

func unsupported(c *cobra.Command, why string) {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(*cobra.Command, []string) error { return errors.New(why) }
}

func hiddenCommands() []*cobra.Command { return nil }

// openFiles returns no limit: this system has none for a process.
func openFiles() uint64 { return math.MaxUint64 }

// ownGroup returns no attributes: this system has no process groups.
func ownGroup() *syscall.SysProcAttr { return nil }

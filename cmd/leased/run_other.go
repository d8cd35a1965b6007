//go:build !unix

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newRun() *cobra.Command {
	return &cobra.Command{Use: "run", Short: "Run a command under a lease (not supported on this system)",
		RunE: func(*cobra.Command, []string) error {
			return errors.New("run needs process groups and signals, which this system does not have; use `leased acquire`")
		}}
}

func newRunGuard() *cobra.Command { return &cobra.Command{Use: "run-guard", Hidden: true} }

func newRunHold() *cobra.Command { return &cobra.Command{Use: "run-hold", Hidden: true} }

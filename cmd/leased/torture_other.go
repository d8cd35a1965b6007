//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newTorture() *cobra.Command {
	return &cobra.Command{Use: "torture", Short: "Break a cluster of real processes (on Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return errors.New("torture needs Linux: a clock that processes share, network namespaces, strace")
		}}
}

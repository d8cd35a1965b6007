//go:build !unix

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newDemo() *cobra.Command {
	return &cobra.Command{Use: "demo", Short: "Show why a lock needs a gate (not supported on this system)",
		RunE: func(*cobra.Command, []string) error {
			return errors.New("demo needs SIGSTOP, which this system does not have")
		}}
}

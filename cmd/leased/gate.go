package main

import "github.com/spf13/cobra"

// newGate holds what makes a storage refuse stale writes.
func newGate() *cobra.Command {
	c := &cobra.Command{
		Use: "gate", Short: "Make a storage refuse stale writes",
		Long: "A gate is the place where a write with an old token is refused. These commands are for\n" +
			"programs in any language: what to put into a database, and a proxy for services that\n" +
			"cannot be changed. Programs in Go use the packages below storagegate.",
		Args: cobra.NoArgs,
	}
	c.AddCommand(newGateDDL(), newGateProxy())
	return c
}

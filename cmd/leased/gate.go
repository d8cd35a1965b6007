package main

import "github.com/spf13/cobra"

// newGate returns the commands that set up gates.
func newGate() *cobra.Command {
	c := &cobra.Command{
		Use: "gate", Short: "Make a storage refuse stale writes",
		Long: "A gate refuses writes with a stale token. These commands are for programs in any language: SQL for a\n" +
			"database, a proxy for HTTP services that cannot be changed, and a command that reopens a resource\n" +
			"after a token that was never granted. Go programs use the packages in storagegate.",
		Args: cobra.NoArgs,
	}
	c.AddCommand(newGateDDL(), newGateProxy(), newGateReset())
	return c
}

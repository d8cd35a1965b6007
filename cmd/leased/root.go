package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// newRoot returns the root command with all commands in the order of the help.
func newRoot() *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:   "leased",
		Short: "Leases with fencing tokens",
		Long: "leased grants leases with fencing tokens, in two modes: efficiency (Redlock) and correctness\n" +
			"(Raft). A lock without a gate is only a hint: pass the token with each write to a gate that\n" +
			"refuses older tokens.\n\n" + exitCodes,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetFlagErrorFunc(flagError)
	for _, group := range commandGroups {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, command := range group.commands {
			c := command()
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(newRunGuard(), newRunHold())
	root.InitDefaultCompletionCmd()
	checkUsage(root)
	addCompletion(root)
	root.PersistentPreRun = func(c *cobra.Command, _ []string) { warnUnknownVariables(c, os.Environ()) }
	return root
}

// checkUsage makes a wrong number of arguments, and an unknown command, usage
// errors.
func checkUsage(c *cobra.Command) {
	for _, sub := range c.Commands() {
		checkUsage(sub)
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			return usageError(fmt.Errorf("unknown command %q; see `%s --help`", args[0], c.CommandPath()))
		}
		return
	}
	check := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		err := check(c, args)
		var coded *codeError
		if err == nil || errors.As(err, &coded) {
			return err
		}
		return usageError(fmt.Errorf("%w; see `%s --help`", err, c.CommandPath()))
	}
}

// commandGroup is a section of the help.
type commandGroup struct {
	id, title string
	commands  []func() *cobra.Command
}

var commandGroups = []commandGroup{
	{"service", "Service:", []func() *cobra.Command{newDev, newServe, newHealth}},
	{"locks", "Locks:", []func() *cobra.Command{newRun, newAcquire, newSign, newRenew, newRelease, newInspect, newList, newTop, newWatch, newBreak}},
	{"operation", "Operations:", []func() *cobra.Command{newPolicy, newUser, newCerts, newKeys, newCluster, newSnapshot, newRedis}},
	{"tools", "Tools:", []func() *cobra.Command{newGate, newBench, newDemo, newVersion}},
}

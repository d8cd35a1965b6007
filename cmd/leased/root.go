package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// newRoot is the command line: every command, in the order of the help.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "leased",
		Short: "Leases with fencing tokens",
		Long: "leased gives out leases with fencing tokens, in two modes: efficiency (Redlock) and\n" +
			"correctness (Raft). A lock with no gate behind it is only a hint: pass the token with\n" +
			"each write to a gate that refuses older ones.\n\n" + exitCodes,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError(fmt.Errorf("%w; see `%s --help`", err, c.CommandPath()))
	})
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
	strict(root)
	return root
}

// strict makes a wrong number of arguments, or a command that does not exist, an
// error of usage.
func strict(c *cobra.Command) {
	for _, sub := range c.Commands() {
		strict(sub)
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

// commandGroup is a part of the help.
type commandGroup struct {
	id, title string
	commands  []func() *cobra.Command
}

var commandGroups = []commandGroup{
	{"service", "The service:", []func() *cobra.Command{newDev, newServe}},
	{"locks", "Locks:", []func() *cobra.Command{newRun, newAcquire, newRenew, newRelease, newInspect, newList, newWatch, newBreak}},
	{"operation", "Operation:", []func() *cobra.Command{newPolicy, newUser, newCluster, newSnapshot, newRedis}},
	{"tools", "Tools:", []func() *cobra.Command{newGate, newDemo, newTorture, newVersion}},
}

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/wire"
)

// A wrong command line is a usage error whose message says what is missing.
func TestUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"acquire":     "acquire needs the name of a lock, or of several for a set; see `leased acquire --help`",
		"inspect a b": "inspect takes only the name of a lock, not also \"b\"; see `leased inspect --help`",
		"redis fleet set": "redis fleet set needs the addresses of the Redis nodes, HOST:PORT; see `leased " +
			"redis fleet set --help`",
		"redis fleet set --force ,": "HOST:PORT is empty; to end efficiency mode, use `leased redis fleet remove`",
		"redis init --redis=":       "no Redis",
		"list --postgres=":          "--postgres is empty",
		"gate proxy reopen":         "gate proxy reopen needs the name of a resource; see `leased gate proxy reopen --help`",
		"break a --token x":         "--token (x) must be a whole number in its range; see `leased break --help`",
		"break a --token -1":        "--token (-1) must be a whole number in its range; see `leased break --help`",
		"inspect a --unknown":       "unknown flag: --unknown; see `leased inspect --help`",
		"snapshot restore --yes=no": "invalid argument \"no\" for \"--yes\" flag",
		"unknown":                   "unknown command \"unknown\"; see `leased --help`",
	} {
		t.Run(line, func(t *testing.T) {
			root := newRoot()
			root.SetArgs(strings.Fields(line))
			err := root.Execute()
			require.ErrorContains(t, err, want)
			code, _ := explain(err)
			require.Equal(t, wire.ExitUsage, code)
		})
	}
}

// The help shows the type of a flag's value. pflag would show the words between
// backquotes in the text of the flag instead.
func TestFlagsShowTheirType(t *testing.T) {
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			require.NotContains(t, f.Usage, "`", "%s --%s", c.CommandPath(), f.Name)
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(newRoot())
}

// Every command has code and help: none is missing in the table or in commands.txt.
func TestEveryCommandHasCodeAndHelp(t *testing.T) {
	seen := map[string]bool{}
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "leased ")
		if _, ok := commands[path]; ok {
			seen[path] = true
		} else {
			require.True(t, c.HasSubCommands(), "%s has no code", path)
		}
		require.NotEmpty(t, c.Short, path)
		require.NotContains(t, c.Long+c.Example, "\n== ", path)
		for _, sub := range c.Commands() {
			if !sub.Hidden && sub.Name() != "completion" {
				check(sub)
			}
		}
	}
	check(newRoot())
	for path := range commands {
		require.True(t, seen[path], "commands.txt has no section for %s", path)
	}
}

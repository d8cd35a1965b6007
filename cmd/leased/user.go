package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/userfile"
)

func newUser() *cobra.Command {
	c := &cobra.Command{Use: "user", Short: "Manage the file with the users that may call the API (leased serve --users)", Args: cobra.NoArgs}
	c.AddCommand(newUserAdd(), newUserList(), newUserRemove())
	return c
}

// addUsers adds the flag with the path of the file.
func addUsers(c *cobra.Command) *string {
	path := c.Flags().String("users", "", "file with the users, the same as for leased serve (LEASED_USERS)")
	check := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		*path = cmp.Or(*path, os.Getenv("LEASED_USERS")) // not a default of the flag: --help would print it
		if *path == "" {
			return usageError(fmt.Errorf("--users is required: the file with the users, such as /etc/leased/users.yaml"))
		}
		if check != nil {
			return check(c, args)
		}
		return nil
	}
	return path
}

func newUserAdd() *cobra.Command {
	c := &cobra.Command{Use: "add NAME", Short: "Add a user and print its secret",
		Long: "Add a user and print its secret. The file contains only a hash of it, so the secret cannot be printed\n" +
			"again. Members read the file at start and on SIGHUP; all members of a cluster need the same users.",
		Example: "  umask 077 # only you may read the secret\n  leased user add alice --users /etc/leased/users.yaml > alice.secret\n" +
			"  leased user add --member members --users /etc/leased/users.yaml > members.secret # for secret-file", Args: exactly(1, "the name of a user")}
	path := addUsers(c)
	member := c.Flags().Bool("member", false, "the members of the cluster call each other as this user")
	c.RunE = func(c *cobra.Command, args []string) error {
		text, err := userfile.Add(*path, args[0], *member)
		if err != nil {
			return usageError(err)
		}
		fmt.Fprintf(c.ErrOrStderr(), "added %s; keep the secret below, it is not shown again. Send SIGHUP to the members.\n", args[0])
		_, err = fmt.Fprintln(c.OutOrStdout(), text)
		return err
	}
	return c
}

func newUserList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the users in the file", Args: cobra.NoArgs}
	path, o := addUsers(c), addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		users, err := userfile.Read(*path)
		if err != nil {
			return usageError(err)
		}
		names, members := []string{}, []string{}
		for _, u := range users {
			if names = append(names, u.Name); u.Member {
				members = append(members, u.Name)
			}
		}
		if o.format == "json" {
			return json.NewEncoder(c.OutOrStdout()).Encode(map[string]any{"users": names, "members": members})
		}
		for _, u := range users {
			text := u.Name
			if u.Member {
				text += " (member)"
			}
			fmt.Fprintln(c.OutOrStdout(), text)
		}
		return nil
	}
	return c
}

func newUserRemove() *cobra.Command {
	c := &cobra.Command{Use: "remove NAME", Short: "Remove a user",
		Long: "Remove a user. From the next SIGHUP on, a member rejects the user's calls and ends those in progress. The\n" +
			"user's leases stay until they expire or `leased break` ends them.", Args: exactly(1, "the name of a user")}
	path := addUsers(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := userfile.Remove(*path, args[0]); err != nil {
			return usageError(err)
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "removed %s; send SIGHUP to the members\n", args[0])
		return err
	}
	return c
}

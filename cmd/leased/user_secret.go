package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/userfile"
	"github.com/leased-project/leased/lease/remote/secret"
)

func newUserSecret() *cobra.Command {
	c := &cobra.Command{Use: "secret", Short: "Add and remove secrets of a user", Args: cobra.NoArgs,
		Long: "Add and remove secrets of a user. All secrets of a user are valid at the same time. To replace one without\n" +
			"downtime: add a secret, send SIGHUP to the members, give the new secret to the callers, remove the old one, and\n" +
			"send SIGHUP again. Sessions and leases stay with the user."}
	c.AddCommand(newUserSecretAdd(), newUserSecretRemove())
	return c
}

func newUserSecretAdd() *cobra.Command {
	c := &cobra.Command{Use: "add NAME", Short: "Add a secret to a user and print it",
		Long:    "Add a secret to a user and print it. The other secrets and the certificate of the user stay valid.",
		Example: "  umask 077 # only you may read the secret\n  leased user secret add alice --users /etc/leased/users.yaml > alice.new",
		Args:    exactly(1, "the name of a user")}
	path := addUsers(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		text, err := userfile.AddSecret(*path, args[0])
		if err != nil {
			return usageError(err)
		}
		fmt.Fprintf(c.ErrOrStderr(), "added secret %s to %s; keep the secret below, it is not shown again. Send SIGHUP to the members.\n",
			userfile.SecretID(secret.HashOf(text)), args[0])
		_, err = fmt.Fprintln(c.OutOrStdout(), text)
		return err
	}
	return c
}

func newUserSecretRemove() *cobra.Command {
	c := &cobra.Command{Use: "remove NAME ID", Short: "Remove a secret from a user",
		Long: "Remove a secret from a user. `leased user list` shows the ids of the secrets, oldest first. From the next SIGHUP\n" +
			"on, a member rejects calls with this secret and ends those in progress. Calls with the other secrets continue.",
		Example: "  leased user secret remove alice 5f1c09ab --users /etc/leased/users.yaml", Args: exactly(2, "the name of a user and the id of a secret")}
	path := addUsers(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := userfile.RemoveSecret(*path, args[0], args[1]); err != nil {
			return usageError(err)
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "removed secret %s from %s; send SIGHUP to the members\n", args[1], args[0])
		return err
	}
	return c
}

package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/userfile"
	"github.com/leased-project/leased/lease/remote/wire"
)

const (
	// completionTimeout bounds the time that a shell waits for the service.
	completionTimeout = time.Second
	// completionPage is the number of locks that are offered.
	completionPage = 200
)

// completedFlags are the flags whose values have few choices, in all commands.
var completedFlags = map[string][]string{
	"mode":       {"efficiency", "correctness"},
	"dialect":    {"postgres", "mysql", "sqlite"},
	"log-level":  {"debug", "info", "warn", "error"},
	"log-format": {"text", "json"},
	"log-store":  {"wal", "bolt"},
	"sort":       lockview.Sorts,
}

// completedArguments are the functions that complete the first argument of a command.
// A command that takes several locks completes all of them.
var completedArguments = map[string]func(c *cobra.Command, begun string) []string{
	"leased acquire":            lockNames,
	"leased run":                lockNames,
	"leased renew":              lockNames,
	"leased release":            lockNames,
	"leased inspect":            lockNames,
	"leased list":               lockNames,
	"leased top":                lockNames,
	"leased sign":               lockNames,
	"leased watch":              lockNames,
	"leased break":              lockNames,
	"leased gate reset":         lockNames,
	"leased policy show":        policyPrefixes,
	"leased policy set":         policyPrefixes,
	"leased policy delete":      policyPrefixes,
	"leased cluster remove":     memberIDs,
	"leased user remove":        userNames,
	"leased user allow":         userNames,
	"leased user deny":          userNames,
	"leased user check":         userNames,
	"leased user secret add":    userNames,
	"leased user secret remove": userNames,
}

// addCompletion adds shell completion to a command and its subcommands.
func addCompletion(c *cobra.Command) {
	for _, sub := range c.Commands() {
		addCompletion(sub)
	}
	for flag, values := range completedFlags {
		if c.Flags().Lookup(flag) != nil {
			_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
		}
	}
	complete := completedArguments[c.CommandPath()]
	if complete == nil {
		return
	}
	c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && c.Name() != "acquire" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var fitting []string
		for _, name := range complete(c, begun) {
			if strings.HasPrefix(name, begun) {
				fitting = append(fitting, name)
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	}
}

// accessOf returns the access that the flags of a command describe.
func accessOf(c *cobra.Command) *access {
	text := func(name string) string {
		value, _ := c.Flags().GetString(name) // empty if the command has no such flag
		return value
	}
	return &access{endpoint: text("endpoint"), caFile: text("tls-ca"), cert: text("tls-cert"), keyFile: text("tls-key"), secretFile: text("secret-file")}
}

// complete calls the service, and ignores errors: a shell has no place for them.
func complete(c *cobra.Command, call func(ctx context.Context, conn *grpc.ClientConn) error) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	_ = accessOf(c).call(ctx, func(conn *grpc.ClientConn) error { return call(ctx, conn) })
}

// lockNames returns the locks in use that begin with a text.
func lockNames(c *cobra.Command, begun string) (names []string) {
	complete(c, func(ctx context.Context, conn *grpc.ClientConn) error {
		page, err := pb.NewLeaseServiceClient(conn).List(ctx, &pb.ListRequest{Prefix: begun, PageSize: completionPage})
		for _, lock := range page.GetLocks() {
			names = append(names, lock.Resource)
		}
		return err
	})
	return names
}

// policyPrefixes returns the prefixes that have a policy.
func policyPrefixes(c *cobra.Command, _ string) (prefixes []string) {
	complete(c, func(ctx context.Context, conn *grpc.ClientConn) error {
		all, err := pb.NewPolicyServiceClient(conn).ListPolicies(ctx, &pb.ListPoliciesRequest{})
		for _, p := range all.GetPolicies() {
			prefixes = append(prefixes, p.Prefix+"*")
		}
		return err
	})
	return prefixes
}

// memberIDs returns the members of the cluster.
func memberIDs(c *cobra.Command, _ string) (ids []string) {
	complete(c, func(ctx context.Context, conn *grpc.ClientConn) error {
		status, err := pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
		for _, m := range status.GetMembers() {
			ids = append(ids, m.Id)
		}
		return wire.FromStatus(err)
	})
	return ids
}

// userNames returns the users of the users file.
func userNames(c *cobra.Command, _ string) (names []string) {
	path, _ := c.Flags().GetString("users")
	users, err := userfile.Read(path)
	if err != nil {
		return nil
	}
	for _, u := range users {
		names = append(names, u.Name)
	}
	return names
}

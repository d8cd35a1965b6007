package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
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
	"dialect":    {"postgres", "mysql", "sqlite", "kubernetes"},
	"log-level":  {"debug", "info", "warn", "error"},
	"log-format": {"text", "json"},
	"log-store":  {"wal", "bolt"},
	"output":     {"table", "json"},
	"sort":       lockview.Sorts,
}

// addCompletion adds shell completion to a command: of its flags, and of its first argument. A command
// that takes several locks completes all of them.
func addCompletion(c *cobra.Command, complete func(c *cobra.Command, begun string) []string) {
	for flag, values := range completedFlags {
		if c.Flags().Lookup(flag) != nil {
			fixed := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
			_ = c.RegisterFlagCompletionFunc(flag, fixed) // fails for unknown flags only
		}
	}
	if complete == nil {
		return
	}
	c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && c.Name() != "acquire" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		other := func(name string) bool { return !strings.HasPrefix(name, begun) }
		names := slices.DeleteFunc(complete(c, begun), other)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// accessOf returns the access that the flags of a command describe.
func accessOf(c *cobra.Command) *access {
	text := func(name string) string {
		value, _ := c.Flags().GetString(name) // empty if the command has no such flag
		return value
	}
	return &access{endpoint: text("endpoint"), caFile: text("tls-ca"), cert: text("tls-cert"),
		keyFile: text("tls-key"), secretFile: text("secret-file"), flags: c.Flags()}
}

// ask calls the service, and ignores errors: a shell has no place for them.
func ask[Request, Answer any](c *cobra.Command, method method[Request, Answer], request Request) Answer {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	got, _ := fetch(ctx, accessOf(c), method, request)
	return got
}

// lockNames returns the locks in use that begin with a text.
func lockNames(c *cobra.Command, begun string) (names []string) {
	for _, lock := range ask(c, api.List, &pb.ListRequest{Prefix: begun, PageSize: completionPage}).GetLocks() {
		names = append(names, lock.Resource)
	}
	return names
}

// policyPrefixes returns the prefixes that have a policy.
func policyPrefixes(c *cobra.Command, _ string) (prefixes []string) {
	for _, p := range ask(c, api.ListPolicies, &pb.ListPoliciesRequest{}).GetPolicies() {
		prefixes = append(prefixes, p.Prefix+"*")
	}
	return prefixes
}

// memberIDs returns the members of the cluster.
func memberIDs(c *cobra.Command, _ string) (ids []string) {
	for _, m := range ask(c, api.Status, &pb.StatusRequest{}).GetMembers() {
		ids = append(ids, m.Id)
	}
	return ids
}

// userNames returns the users of the users file.
func userNames(c *cobra.Command, _ string) (names []string) {
	path, _ := c.Flags().GetString("users")
	users, err := settings.ReadUsers(path)
	if err != nil {
		return nil
	}
	for _, u := range users {
		names = append(names, u.Name)
	}
	return names
}

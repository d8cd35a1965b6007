package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
)

// followInterval is the time between two polls of a change in progress.
const followInterval = 200 * time.Millisecond

// follow calls poll until a change is complete, and prints the progress whenever it
// differs. The change does not need the command: after an interrupt it prints a
// message that says so. While the service is unavailable it continues to poll.
func follow(c *cobra.Command, interrupted string, poll func(ctx context.Context) (progress string, done bool, err error)) error {
	ctx, stop := untilInterrupted(c.Context())
	defer stop()
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	printed := ""
	for {
		progress, done, err := poll(ctx)
		switch {
		case ctx.Err() != nil:
			fmt.Fprintln(c.ErrOrStderr(), interrupted)
			return context.Cause(ctx)
		case err != nil && !temporary(err):
			return err
		case err != nil:
			progress = fmt.Sprintf("%v; retrying", err)
		case done:
			return nil
		}
		if progress != printed {
			printed = progress
			fmt.Fprintln(c.ErrOrStderr(), progress)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// temporary reports whether a retry may succeed.
func temporary(err error) bool {
	return (errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrUncertain)) && !errors.Is(err, wire.ErrUnauthenticated)
}

// migrationFollower waits for the end of a migration.
type migrationFollower struct {
	access    *access
	command   *cobra.Command
	migration *pb.Migration // nil if there is none
	to        string        // the mode of the policy afterwards; empty if it is deleted
}

// follow returns when the migration is complete, at once if there is none.
func (f *migrationFollower) follow(noWait bool) error {
	if f.migration == nil || noWait {
		return nil
	}
	prefix := f.migration.Prefix
	return follow(f.command,
		fmt.Sprintf("the migration of %[1]s* continues; see `leased policy show '%[1]s*'`, or cancel it with `leased policy set '%[1]s*' --abort`", prefix), f.poll)
}

func (f *migrationFollower) poll(ctx context.Context) (progress string, done bool, err error) {
	all, err := fetch(ctx, f.access, pb.NewPolicyServiceClient, pb.PolicyServiceClient.ListPolicies, &pb.ListPoliciesRequest{})
	if err != nil {
		return "", false, err
	}
	for _, m := range all.Migrations {
		if m.Prefix == f.migration.Prefix && m.To == f.migration.To {
			return migrationText(m), false, nil
		}
	}
	mode := ""
	for _, p := range all.Policies {
		if p.Prefix == f.migration.Prefix {
			mode = p.Mode
		}
	}
	if mode != f.to {
		return "", false, fmt.Errorf("the migration of %s* was canceled or replaced by a later change; see `leased policy show '%s*'`",
			f.migration.Prefix, f.migration.Prefix)
	}
	return "", true, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
)

// followPause is the time between two looks at a change that is under way.
const followPause = 200 * time.Millisecond

// follow calls look until it reports that a change is complete, and prints its
// progress each time that it differs. The change goes on without the command: an
// interrupt says so, with what to do. While no member can be asked it keeps on.
func follow(c *cobra.Command, interrupted string, look func(ctx context.Context) (progress string, done bool, err error)) error {
	ctx, stop := untilInterrupted(c.Context())
	defer stop()
	tick := time.NewTicker(followPause)
	defer tick.Stop()
	told := ""
	for {
		progress, done, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			fmt.Fprintln(c.ErrOrStderr(), interrupted)
			return context.Cause(ctx)
		case err != nil && !passing(err):
			return err
		case err != nil:
			progress = fmt.Sprintf("%v; asking again", err)
		case done:
			return nil
		}
		if progress != told {
			told = progress
			fmt.Fprintln(c.ErrOrStderr(), progress)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// passing reports whether an error of a look may be over soon.
func passing(err error) bool {
	return (errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrUncertain)) && !errors.Is(err, wire.ErrUnauthenticated)
}

// moveFollower waits for the end of a move.
type moveFollower struct {
	access  *access
	command *cobra.Command
	move    *pb.Migration // nil if there is none
	to      string        // the mode that the policy must have then; empty if it is deleted
}

// follow returns when the move is complete, at once if there is none.
func (f *moveFollower) follow(noWait bool) error {
	if f.move == nil || noWait {
		return nil
	}
	prefix := f.move.Prefix
	return follow(f.command,
		fmt.Sprintf("the move of %[1]s* goes on; see `leased policy show '%[1]s*'`, end it with `leased policy set '%[1]s*' --abort`", prefix), f.look)
}

func (f *moveFollower) look(ctx context.Context) (progress string, done bool, err error) {
	var all *pb.ListPoliciesResponse
	err = f.access.onLeader(ctx, func(conn *grpc.ClientConn) (err error) {
		all, err = pb.NewPolicyServiceClient(conn).ListPolicies(ctx, &pb.ListPoliciesRequest{})
		return err
	})
	if err != nil {
		return "", false, err
	}
	for _, m := range all.Migrations {
		if m.Prefix == f.move.Prefix && m.To == f.move.To {
			return moveText(m), false, nil
		}
	}
	mode := ""
	for _, p := range all.Policies {
		if p.Prefix == f.move.Prefix {
			mode = p.Mode
		}
	}
	if mode != f.to {
		return "", false, fmt.Errorf("the move of %s* was aborted, or another change came after it; see `leased policy show '%s*'`",
			f.move.Prefix, f.move.Prefix)
	}
	return "", true, nil
}

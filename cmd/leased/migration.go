package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/progress"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// followInterval is the time between two polls of a change in progress.
const followInterval = 200 * time.Millisecond

// follow calls poll until a change is complete, and shows the progress: the step, and
// what changes within it. The service completes the change without the command: if the
// command is interrupted, it says so. While the service is unavailable it keeps polling.
func follow(c *cobra.Command, interrupted string,
	poll func(ctx context.Context) (step step, done bool, err error)) error {
	ctx, stop := untilInterrupted(c.Context())
	defer stop()
	line := progress.New(os.Stderr, time.Now)
	defer line.End()
	for {
		now, done, err := poll(ctx)
		switch {
		case ctx.Err() != nil:
			line.End()
			fmt.Fprintln(c.ErrOrStderr(), interrupted)
			return context.Cause(ctx)
		case err != nil && !temporary(err):
			return err
		case err != nil:
			now = step{text: fmt.Sprintf("%s; retrying", oneLine(err.Error()))}
		case done:
			return nil
		}
		line.Stage(now.text, now.detail())
		_ = engine.Sleep(ctx, followInterval)
	}
}

// step is what a change in progress waits for.
type step struct {
	text string
	left time.Duration // 0 if it is unknown
}

// timeLeft matches the remaining time in a text in which the service says what it waits
// for.
var timeLeft = regexp.MustCompile(`, ([0-9][0-9a-zµ.]*) left`)

// newStep separates the time left, which always changes, from the rest of a text.
func newStep(text string) step {
	s := step{text: text}
	if at := timeLeft.FindStringSubmatchIndex(text); at != nil {
		if left, err := time.ParseDuration(text[at[2]:at[3]]); err == nil {
			s = step{text: text[:at[0]] + text[at[1]:], left: left}
		}
	}
	return s
}

// detail returns the time left.
func (s step) detail() string {
	if s.left <= 0 {
		return ""
	}
	return "; " + progress.TimeLeft(s.left)
}

// temporary reports whether a retry may succeed.
func temporary(err error) bool {
	return (errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrUncertain)) &&
		!errors.Is(err, wire.ErrUnauthenticated)
}

// policyChange is the answer to a change of a policy.
type policyChange interface {
	proto.Message
	GetMigration() *pb.Migration // nil if the mode stays
}

// finish waits until the migration of a change is complete, unless noWait is set, and
// prints the outcome. mode is the mode of the policy afterwards, empty if it is
// deleted.
func (a *access) finish(c *cobra.Command, o *output, change policyChange, mode string, noWait bool, done string) error {
	m := change.GetMigration()
	switch {
	case m == nil:
	case noWait:
		return o.say(c, change, nil, "%s; see `leased policy show`", migrationText(m))
	default:
		interrupted := fmt.Sprintf("the migration of %[1]s* continues; see `leased policy show '%[1]s*'`, or abort it "+
			"with `leased policy set '%[1]s*' --abort`", m.Prefix)
		err := follow(c, interrupted, func(ctx context.Context) (step, bool, error) { return a.migration(ctx, m, mode) })
		if err != nil {
			return err
		}
	}
	return o.say(c, change, nil, "%s", done)
}

// migration reports the progress of a migration, and whether it is complete.
func (a *access) migration(ctx context.Context, wanted *pb.Migration, mode string) (now step, done bool, err error) {
	all, err := fetch(ctx, a, api.ListPolicies, &pb.ListPoliciesRequest{})
	if err != nil {
		return step{}, false, err
	}
	for _, m := range all.Migrations {
		if m.Prefix == wanted.Prefix && m.To == wanted.To {
			return newStep(migrationText(m)), false, nil
		}
	}
	if findPolicy(all.Policies, wanted.Prefix).GetMode() != mode {
		return step{}, false, fmt.Errorf("the migration of %[1]s* was aborted or replaced by a later change; see `leased "+
			"policy show '%[1]s*'`", wanted.Prefix)
	}
	return step{}, true, nil
}

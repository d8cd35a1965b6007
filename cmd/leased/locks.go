package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/terminal"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

func setUpInspect(c *cobra.Command) {
	c.Args = exactly(1, "the name of a lock")
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := fetch(c.Context(), a, api.Inspect, &pb.InspectRequest{Resource: args[0]})
		if errors.As(err, new(*wire.NotLeaderError)) {
			return fmt.Errorf("%w; `leased top --once %s` shows the state of one member", err, args[0])
		}
		if err != nil {
			return readError(err)
		}
		return o.print(c, r.Lock, func(t *tabwriter.Writer) { tableOfLock(t, r.Lock) })
	}
}

func tableOfLock(t *tabwriter.Writer, lock *pb.Lock) {
	state := "free"
	switch {
	case len(lock.Holders) > 0:
		state = "held"
	case lock.Delayed:
		state = "in its lock-delay"
	}
	fmt.Fprintf(t, "%s: %s, mode %s\n", terminal.Clean(lock.Resource), state, lock.Mode)
	if len(lock.Holders)+len(lock.Waiters) == 0 {
		return
	}
	row(t, "ROLE", "NAME", "USER", "TOKEN", "KIND", "SLOT", sinceTitle, "FOR", "EXPIRES IN", "SESSION")
	for _, p := range lock.Holders {
		row(t, "holder", p.Holder, p.User, number(p.Token), p.Kind, number(p.Slot), sinceText(p.Since), ageText(p.Age),
			roundText(p.TtlLeft), sessionText(p.SessionId))
	}
	for i, p := range lock.Waiters {
		row(t, fmt.Sprintf("waiter %d", i+1), p.Holder, p.User, "", p.Kind, number(p.Slot), sinceText(p.Since),
			ageText(p.Age), "", sessionText(p.SessionId))
	}
}

// sessionText returns a session id, or "" for the zero session.
func sessionText(id string) string {
	if strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}

// number formats n, and 0 as "".
func number[T int32 | int64 | uint64](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func setUpBreak(c *cobra.Command) {
	var token uint64
	c.Args = exactly(1, "the name of a lock")
	a, o := addAccess(c), addOutput(c)
	c.Flags().Uint64Var(&token, "token", 0, "token of the lease, shown by leased inspect (required)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if token == 0 {
			return usageError(fmt.Errorf("--token is required: `leased inspect %s` shows it", args[0]))
		}
		return a.call(c.Context(), func(service api) error {
			got, err := service.Break(c.Context(), &pb.BreakRequest{Resource: args[0], Token: token})
			if errors.Is(wire.FromStatus(err), lease.ErrNotHeld) {
				return &codeError{wire.ExitLost, fmt.Errorf("%s is not held with token %d; `leased inspect %s` shows the holders",
					args[0], token, args[0])}
			}
			return o.say(c, got, err, "broke the lease on %s with token %d", args[0], token)
		})
	}
}

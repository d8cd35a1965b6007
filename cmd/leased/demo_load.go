package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/cmd/leased/internal/demo"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/lease"
)

// stopTimeout bounds how long the demo waits for its last releases.
const stopTimeout = 5 * time.Second

// loadFlags are the flags of demo load.
type loadFlags struct {
	access   *access
	workers  int
	prefix   string
	duration time.Duration
}

func setUpDemoLoad(c *cobra.Command) {
	f := &loadFlags{access: addRedisAccess(c)}
	flags := c.Flags()
	flags.IntVar(&f.workers, "workers", 24, "number of workers")
	flags.StringVar(&f.prefix, "prefix", "demo/", "prefix of the names of all locks")
	flags.DurationVar(&f.duration, "duration", 0, "time after which the demo stops (default: until Ctrl-C)")
	c.RunE = interruptible(func(c *cobra.Command, _ []string) error {
		if f.workers < 0 || f.workers > 10_000 {
			return usageError(fmt.Errorf("--workers (%d) must be between 0 and 10000", f.workers))
		}
		if err := positive(flags, "duration"); err != nil {
			return err
		}
		return f.run(c.Context(), c.OutOrStdout())
	})
}

// run runs the demo until ctx ends or the duration has passed.
func (f *loadFlags) run(ctx context.Context, out io.Writer) error {
	fast, err := f.setPolicies(ctx)
	if err != nil {
		return err
	}
	connected, err := f.access.dial(ctx, client.WithLogger(slog.New(slog.DiscardHandler)),
		client.WithLeaseOptions(lease.WithName("demo")))
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		_ = connected.Close(closing) // sessions expire by themselves
	}()
	load := &demo.Load{Client: connected, Workers: f.workers, Prefix: f.prefix, Out: out}
	fmt.Fprintf(out, "starting %d workers that acquire locks below %q, %s\n", f.workers, f.prefix, fast)
	fmt.Fprintf(out, "See them with `%[1]s top`, `%[1]s list --watch` and at %[2]s; Ctrl-C stops the demo.\n",
		selfCommand(), f.page())
	limited := ctx
	if f.duration > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	load.Run(limited)
	totals := load.Totals()
	fmt.Fprintf(out, "the demo was granted %d leases, and its gate refused %d late writes\n",
		totals.Grants, totals.Refused)
	if len(totals.Failures) > 0 {
		var parts []string
		for _, code := range slices.Sorted(maps.Keys(totals.Failures)) {
			parts = append(parts, fmt.Sprintf("%d %s", totals.Failures[code], code))
		}
		fmt.Fprintf(out, "failed calls by code: %s\n", strings.Join(parts, ", "))
	}
	return context.Cause(ctx)
}

// page returns the address of the dashboard of the first member.
func (f *loadFlags) page() string {
	scheme := "http"
	if f.access.caFile != "" {
		scheme = "https"
	}
	return scheme + "://" + settings.Split(f.access.endpoint)[0] + "/"
}

// setPolicies puts some locks of the demo into efficiency mode if the service has Redis
// nodes. It returns a sentence about that.
func (f *loadFlags) setPolicies(ctx context.Context) (string, error) {
	fleet, err := f.access.fleet(ctx)
	if err != nil && !errors.Is(err, lease.ErrForbidden) {
		return "", err
	}
	if len(fleet.GetFleet().GetAddresses()) == 0 {
		return "all in correctness mode: the service has no Redis nodes", nil
	}
	when := ""
	for _, prefix := range demo.FastPrefixes(f.prefix) {
		policy := &pb.Policy{Prefix: prefix, Mode: lease.Efficiency.String()}
		got, err := fetch(ctx, f.access, api.SetPolicy, &pb.SetPolicyRequest{Policy: policy})
		if errors.Is(err, lease.ErrForbidden) {
			return "with the current policies: you lack the right to change them", nil
		}
		if err != nil {
			return "", fmt.Errorf("put the locks %s* into efficiency mode: %w", prefix, err)
		}
		if got.GetMigration() != nil {
			when = " after their migration, which `leased policy show` shows"
		}
	}
	prefixes := strings.Join(demo.FastPrefixes(f.prefix), " and ")
	return fmt.Sprintf("those below %s in efficiency mode%s", prefixes, when), nil
}

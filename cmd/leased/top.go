package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/terminal"
)

const (
	// minInterval is the shortest time between two updates of a live list.
	minInterval = 100 * time.Millisecond
	// sectionSize is the number of locks in a section of `leased top --once`.
	sectionSize = 5
)

// topFlags are the flags of top.
type topFlags struct {
	access   *access
	output   *output
	sort     string
	mode     string
	limit    int
	once     bool
	interval time.Duration
}

func newTop() *cobra.Command {
	f := &topFlags{}
	c := &cobra.Command{Use: "top [PREFIX]", Short: "Show the busiest locks, longest queues and longest holders live", Args: cobra.MaximumNArgs(1),
		Long: "Show the members and the locks live on the terminal: the longest queues, the longest holders, the busiest\n" +
			"locks and those with the most refused writes, of all locks or of those whose names start with PREFIX.\n\n" +
			"Keys: 1 queue, 2 held, 3 rate, 4 refused and 5 name select the order, and s the next one; / sets the prefix; arrows,\n" +
			"PgUp and PgDn scroll; p pauses; h shows help; q quits.\n\n" +
			"While no leader can be reached, the state of one member is shown, with a warning. With --once, or if the\n" +
			"output is not a terminal, one page is printed: the first locks of each order, or of the one in --sort.",
		Example: "  leased top\n  leased top deploy/\n  leased top --once\n  leased top --once --sort held --limit 20"}
	f.access, f.output = addAccess(c), addOutput(c)
	flags := c.Flags()
	addListFlags(flags, &f.sort, "order: "+strings.Join(lockview.Sorts, ", ")+" (default: queue)", &f.mode, &f.limit, &f.interval)
	flags.BoolVar(&f.once, "once", false, "print one page and exit")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := checkListFlags(flags, f.sort, f.limit, f.interval); err != nil {
			return err
		}
		ctx, stop := untilInterrupted(c.Context())
		defer stop()
		if f.once {
			return f.page(ctx, c, prefixOf(args))
		}
		screen, err := f.output.openScreen()
		if err != nil {
			return err
		}
		view := &lockview.View{Keys: true, Sort: f.sort, Prefix: prefixOf(args), Mode: f.mode, Limit: f.limit, Interval: f.interval}
		if view.Sort == "" {
			view.Sort = lockview.Sorts[0]
		}
		switch {
		case screen != nil:
			return (&live{access: f.access, view: view, screen: screen}).run(ctx)
		case f.output.format == "json":
			return f.output.follow(ctx, f.access, view.Request(), c.OutOrStdout(), c.ErrOrStderr())
		}
		return f.page(ctx, c, prefixOf(args))
	}
	return c
}

// addListFlags adds the flags that `leased top` and `leased list` share.
func addListFlags(flags *pflag.FlagSet, sort *string, sortUsage string, mode *string, limit *int, interval *time.Duration) {
	flags.StringVar(sort, "sort", "", sortUsage)
	flags.StringVar(mode, "mode", "", "show only locks of this mode: efficiency or correctness")
	flags.IntVar(limit, "limit", 0, "show at most this many locks (default: no limit)")
	flags.DurationVar(interval, "interval", time.Second, "time between two updates of a live list")
}

// checkListFlags checks them.
func checkListFlags(flags *pflag.FlagSet, sort string, limit int, interval time.Duration) error {
	switch {
	case sort != "" && !slices.Contains(lockview.Sorts, sort):
		return usageError(fmt.Errorf("--sort (%s) must be one of %s", sort, strings.Join(lockview.Sorts, ", ")))
	case limit < 0 || flags.Changed("limit") && limit == 0:
		return usageError(fmt.Errorf("--limit (%d) must be above 0; leave it out for no limit", limit))
	case interval < minInterval:
		return usageError(fmt.Errorf("--interval (%v) must be at least %v", interval, minInterval))
	}
	return nil
}

// page prints one page: all orders, or the one that was given.
func (f *topFlags) page(ctx context.Context, c *cobra.Command, prefix string) error {
	sorts, limit := lockview.Sorts[:4], sectionSize
	if f.sort != "" {
		sorts, limit = []string{f.sort}, 20
	}
	if f.limit > 0 {
		limit = min(f.limit, 500)
	}
	var sections []lockview.Section
	var cluster *pb.ClusterStatusResponse
	read := func(local bool) error {
		sections, cluster = nil, nil
		return f.access.call(ctx, func(conn *grpc.ClientConn) error {
			for _, sort := range sorts {
				request := &pb.OverviewRequest{Prefix: prefix, Mode: f.mode, Sort: sort, Limit: int32(limit), Interval: f.interval.String(), Local: local}
				answer, err := firstOverview(ctx, conn, request)
				if err != nil {
					return err
				}
				sections = append(sections, lockview.Section{Sort: sort, Overview: answer})
			}
			cluster, _ = clusterStatus(ctx, conn) // needs a right that the caller may lack
			return nil
		})
	}
	err, problem := read(false), ""
	if err != nil && temporary(err) {
		if problem = leaderless(err); read(true) == nil {
			err = nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return readError(err)
	case f.output.format == "json":
		for _, s := range sections {
			if err := printJSON(c.OutOrStdout(), s.Overview, ""); err != nil {
				return err
			}
		}
		return nil
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), strings.Join(lockview.Sections(cluster, problem, sections, terminal.WidthOf(os.Stdout)), "\n"))
	return err
}

// firstOverview returns the first answer to a request.
func firstOverview(ctx context.Context, conn *grpc.ClientConn, request *pb.OverviewRequest) (*pb.OverviewResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewLeaseServiceClient(conn).Overview(ctx, request)
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

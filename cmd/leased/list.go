package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/terminal"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
)

// listFlags are the flags of list.
type listFlags struct {
	access   *access
	output   *output
	sort     string
	mode     string
	limit    int
	watch    bool
	interval time.Duration
}

func newList() *cobra.Command {
	f := &listFlags{}
	c := &cobra.Command{Use: "list [PREFIX]", Short: "List the locks in use, with their holders and queues",
		Long: "List the locks that have holders or waiters and whose names start with PREFIX, or all of them: who holds\n" +
			"each lock, since when, and its queue. Locks in efficiency mode are read from the Redis nodes: with --mode\n" +
			"efficiency the command needs no leader. If the nodes do not answer, the command prints the locks in\n" +
			"correctness mode and a warning on stderr, and ends with code 0; with --mode efficiency it fails.\n\n" +
			"With --watch the list is live, until Ctrl-C or q: on a terminal it is drawn in place, otherwise locks that\n" +
			"have changed are printed as lines, and with --output json each state of the list is a line of JSON. The\n" +
			"orders rate and refused need --watch. `leased top` shows more and has keys.",
		Example: "  leased list deploy/\n  leased list --sort queue --limit 10\n  leased list 'report/*' --mode efficiency\n  leased list --watch --sort held",
		Args:    cobra.MaximumNArgs(1)}
	f.access, f.output = addAccess(c), addOutput(c)
	flags := c.Flags()
	addListFlags(flags, &f.sort, "order: name, queue (most waiters first), held (longest holder first), rate or refused (default: name)", &f.mode, &f.limit, &f.interval)
	flags.BoolVarP(&f.watch, "watch", "w", false, "show the list live")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := checkListFlags(flags, f.sort, f.limit, f.interval); err != nil {
			return err
		}
		f.sort = cmp.Or(f.sort, "name")
		if f.watch {
			return f.follow(c, prefixOf(args))
		}
		if f.sort == "rate" || f.sort == "refused" {
			return usageError(fmt.Errorf("--sort %s needs --watch, or use `leased top --once --sort %s`", f.sort, f.sort))
		}
		return f.print(c, prefixOf(args))
	}
	return c
}

// follow shows the list live.
func (f *listFlags) follow(c *cobra.Command, prefix string) error {
	ctx, stop := untilInterrupted(c.Context())
	defer stop()
	screen, err := f.output.openScreen()
	if err != nil {
		return err
	}
	view := &lockview.View{Sort: f.sort, Prefix: prefix, Mode: f.mode, Limit: f.limit, Interval: f.interval}
	if screen != nil {
		return (&live{access: f.access, view: view, screen: screen}).run(ctx)
	}
	request := view.Request()
	request.Limit = int32(cmp.Or(min(f.limit, maxWatched), maxWatched))
	return f.output.follow(ctx, f.access, request, c.OutOrStdout(), c.ErrOrStderr())
}

// maxWatched is the largest number of locks that the service returns at once.
const maxWatched = 500

// print prints the list once.
func (f *listFlags) print(c *cobra.Command, prefix string) error {
	all, missing, err := f.read(c.Context(), prefix)
	var not *wire.NotLeaderError
	if errors.As(err, &not) && f.mode == "" {
		return fmt.Errorf("%w; `leased top --once` shows the state of one member, and `leased list --mode efficiency` works without a leader", err)
	}
	if err != nil {
		return readError(err)
	}
	if missing != nil {
		fmt.Fprintln(c.ErrOrStderr(), "leased: warning: locks in efficiency mode are missing, because the Redis nodes did not answer; see `leased redis status`")
	}
	sortLocks(all.Locks, f.sort)
	if f.limit > 0 {
		all.Locks = all.Locks[:min(f.limit, len(all.Locks))]
	}
	return f.output.print(c.OutOrStdout(), all, func(t *tabwriter.Writer) { tableOfLocks(t, all.Locks, terminal.WidthOf(os.Stdout)) })
}

// read returns all locks with a prefix, sorted by name. Without a mode it reads the modes
// one after the other, and missing says why locks in efficiency mode are missing: Redis
// nodes that are down must not hide the locks in correctness mode.
func (f *listFlags) read(ctx context.Context, prefix string) (all *pb.ListResponse, missing, err error) {
	err = f.access.call(ctx, func(conn *grpc.ClientConn) error {
		service := pb.NewLeaseServiceClient(conn)
		all, missing = &pb.ListResponse{}, nil
		mode := cmp.Or(f.mode, lease.Correctness.String())
		if err := readMode(ctx, service, prefix, mode, all); err != nil || f.mode != "" {
			return err
		}
		inRedis := &pb.ListResponse{}
		err := callError(readMode(ctx, service, prefix, lease.Efficiency.String(), inRedis))
		if errors.Is(err, lease.ErrUnavailable) && ctx.Err() == nil {
			missing = err
			return nil
		}
		all.Locks = append(all.Locks, inRedis.Locks...)
		slices.SortStableFunc(all.Locks, func(a, b *pb.Lock) int { return cmp.Compare(a.Resource, b.Resource) })
		return err
	})
	return all, missing, err
}

// readMode adds the locks of one mode to all.
func readMode(ctx context.Context, service pb.LeaseServiceClient, prefix, mode string, all *pb.ListResponse) error {
	request := &pb.ListRequest{Prefix: prefix, PageSize: 1000, Mode: mode}
	for {
		page, err := service.List(ctx, request)
		if err != nil {
			return err
		}
		all.Locks = append(all.Locks, page.Locks...)
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			return nil
		}
	}
}

// sortLocks sorts locks that are sorted by name. Locks that are equal stay in that order.
func sortLocks(locks []*pb.Lock, order string) {
	switch order {
	case "queue":
		slices.SortStableFunc(locks, func(a, b *pb.Lock) int { return cmp.Compare(len(b.Waiters), len(a.Waiters)) })
	case "held":
		slices.SortStableFunc(locks, func(a, b *pb.Lock) int { return cmp.Compare(heldFor(b), heldFor(a)) })
	}
}

// heldFor returns the age of the oldest lease of a lock, or -1 if it is unknown.
func heldFor(lock *pb.Lock) time.Duration {
	oldest := time.Duration(-1)
	for _, p := range lock.Holders {
		if age, err := time.ParseDuration(p.Age); err == nil {
			oldest = max(oldest, age)
		}
	}
	return oldest
}

// maxNamed is the number of columns for the name of a holder or waiter on a terminal.
const maxNamed = 24

// tableOfLocks prints locks. On a terminal, which has a width, long names are cut so that
// the other columns stay visible.
func tableOfLocks(t *tabwriter.Writer, locks []*pb.Lock, width int) {
	cut := func(name string, limit int) string {
		if width <= 0 {
			return name
		}
		return terminal.Fit(terminal.Clean(name), limit, true)
	}
	row(t, "RESOURCE", "MODE", "HOLDER", "USER", "TOKEN", sinceTitle, "HELD FOR", "EXPIRES IN", "WAITERS", "FIRST WAITER")
	for _, lock := range locks {
		waiter := ""
		if len(lock.Waiters) > 0 {
			waiter = waiterText(lock.Waiters[0], cut)
		}
		name := cut(lock.Resource, max(maxNamed, width/3))
		for _, p := range lock.Holders {
			row(t, name, lock.Mode, cut(p.Holder, maxNamed), p.User, number(p.Token), sinceText(p.Since), ageText(p.Age), roundText(p.TtlLeft), len(lock.Waiters), waiter)
		}
		if len(lock.Holders) == 0 {
			row(t, name, lock.Mode, "", "", "", "", "", "", len(lock.Waiters), waiter)
		}
	}
}

// waiterText names a waiter and says how long it has waited.
func waiterText(p *pb.Party, cut func(name string, limit int) string) string {
	text := cut(lockview.Name(p), maxNamed)
	if p.Age != "" {
		text += " for " + lockview.Age(p.Age)
	}
	return text
}

// sinceTitle is the title of a column with texts of sinceText.
const sinceTitle = "SINCE (UTC)"

// sinceText returns a time of the API in UTC, without fractions.
func sinceText(text string) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return ""
	}
	return at.UTC().Format(time.DateTime)
}

// ageText returns a duration of the API for people, "" if it is unknown.
func ageText(text string) string {
	if text == "" {
		return ""
	}
	return lockview.Age(text)
}

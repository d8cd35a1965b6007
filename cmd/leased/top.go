package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/terminal"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

const (
	// minInterval is the shortest time between two updates of a live list.
	minInterval = 100 * time.Millisecond
	// sectionSize is the number of locks in a section of `leased top --once`.
	sectionSize = 5
)

func setUpTop(c *cobra.Command) {
	f := addLockFlags(c, "order: "+strings.Join(lockview.Sorts, ", ")+" (default: queue)")
	once := c.Flags().Bool("once", false, "print one page and exit")
	c.RunE = interruptible(func(c *cobra.Command, args []string) error {
		if err := f.check(c); err != nil {
			return err
		}
		if *once {
			return f.page(c, prefixOf(args))
		}
		view := f.view(prefixOf(args))
		view.Sort = cmp.Or(view.Sort, lockview.Sorts[0])
		if shown, err := f.live(c.Context(), view); shown || err != nil {
			return err
		}
		if f.output.format == "json" {
			return f.follow(c, view.Request())
		}
		return f.page(c, prefixOf(args))
	})
}

// lockFlags are the flags that `leased top` and `leased list` share.
type lockFlags struct {
	access     *access
	output     *output
	sort, mode string
	limit      int
	interval   time.Duration
}

func addLockFlags(c *cobra.Command, sortUsage string) *lockFlags {
	c.Args = cobra.MaximumNArgs(1)
	f := &lockFlags{access: addAccess(c), output: addOutput(c)}
	flags := c.Flags()
	flags.StringVar(&f.sort, "sort", "", sortUsage)
	flags.StringVar(&f.mode, "mode", "", "show only locks of this mode: efficiency or correctness")
	flags.IntVar(&f.limit, "limit", 0, "show at most this many locks (default: no limit)")
	flags.DurationVar(&f.interval, "interval", time.Second, "time between two updates of a live list")
	return f
}

func (f *lockFlags) check(c *cobra.Command) error {
	switch {
	case f.sort != "" && !slices.Contains(lockview.Sorts, f.sort):
		return usageError(fmt.Errorf("--sort (%s) must be one of %s", f.sort, strings.Join(lockview.Sorts, ", ")))
	case f.limit < 0 || c.Flags().Changed("limit") && f.limit == 0:
		return usageError(fmt.Errorf("--limit (%d) must be above 0; leave it out for no limit", f.limit))
	case f.access.postgres() != "" && (f.sort == "rate" || f.sort == "refused"):
		return usageError(fmt.Errorf("--sort %s needs the lock service: a database does not know it; use queue, held or name",
			f.sort))
	case f.interval < minInterval:
		return usageError(fmt.Errorf("--interval (%v) must be at least %v", f.interval, minInterval))
	}
	return nil
}

func (f *lockFlags) view(prefix string) *lockview.View {
	return &lockview.View{Sort: f.sort, Prefix: prefix, Mode: f.mode, Limit: f.limit, Interval: f.interval}
}

// page prints one page: all orders, or the one that was given.
func (f *lockFlags) page(c *cobra.Command, prefix string) error {
	ctx := c.Context()
	sorts, limit := lockview.Sorts[:4], sectionSize
	if f.access.postgres() != "" { // a database has no rates and no refused writes
		sorts = lockview.Sorts[:2]
	}
	if f.sort != "" {
		sorts, limit = []string{f.sort}, 20
	}
	if f.limit > 0 {
		limit = min(f.limit, 500)
	}
	var sections []lockview.Section
	var cluster *pb.ClusterStatusResponse
	read := func(local bool) error {
		return f.access.call(ctx, func(service api) error {
			sections, cluster = nil, nil // another member may have answered a part
			for _, sort := range sorts {
				answer, err := first(ctx, service.Overview, &pb.OverviewRequest{Prefix: prefix, Mode: f.mode, Sort: sort,
					Limit: int32(limit), Interval: f.interval.String(), Local: local})
				if err != nil {
					return err
				}
				sections = append(sections, lockview.Section{Sort: sort, Overview: answer})
			}
			cluster, _ = clusterStatus(ctx, service) // needs a right that the caller may lack
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
	lines := lockview.Sections(cluster, problem, sections, terminal.WidthOf(os.Stdout))
	return say(c, "%s", strings.Join(lines, "\n"))
}

func setUpList(c *cobra.Command) {
	f := addLockFlags(c, "order: name, queue (most waiters first), held (longest holder first), rate or refused "+
		"(default: name)")
	watch := c.Flags().BoolP("watch", "w", false, "show the list live")
	c.RunE = interruptible(func(c *cobra.Command, args []string) error {
		if err := f.check(c); err != nil {
			return err
		}
		f.sort = cmp.Or(f.sort, "name")
		if *watch {
			return f.watch(c, prefixOf(args))
		}
		if f.sort == "rate" || f.sort == "refused" {
			return usageError(fmt.Errorf("--sort %s needs --watch, or use `leased top --once --sort %s`", f.sort, f.sort))
		}
		return f.print(c, prefixOf(args))
	})
}

// watch shows the list live.
func (f *lockFlags) watch(c *cobra.Command, prefix string) error {
	view := f.view(prefix)
	if shown, err := f.live(c.Context(), view); shown || err != nil {
		return err
	}
	request := view.Request()
	request.Limit = int32(cmp.Or(min(f.limit, maxWatched), maxWatched))
	return f.follow(c, request)
}

// maxWatched is the largest number of locks that the service returns at once.
const maxWatched = 500

// print prints the list once.
func (f *lockFlags) print(c *cobra.Command, prefix string) error {
	all, missing, err := f.read(c.Context(), prefix)
	if errors.As(err, new(*wire.NotLeaderError)) && f.mode == "" {
		return fmt.Errorf("%w; `leased top --once` shows the state of one member, and `leased list --mode efficiency` "+
			"works without a leader", err)
	}
	if err != nil {
		return readError(err)
	}
	if missing != nil {
		fmt.Fprintln(c.ErrOrStderr(), "leased: warning: locks in efficiency mode are missing, because the Redis nodes did "+
			"not answer; see `leased redis status`")
	}
	sortLocks(all.Locks, f.sort)
	if f.limit > 0 {
		all.Locks = all.Locks[:min(f.limit, len(all.Locks))]
	}
	return f.output.print(c, all, func(t *tabwriter.Writer) { tableOfLocks(t, all.Locks, terminal.WidthOf(os.Stdout)) })
}

// read returns all locks with a prefix, sorted by name. Without a mode it reads the modes
// one after the other, and missing says why locks in efficiency mode are missing: Redis
// nodes that are down must not hide the locks in correctness mode.
func (f *lockFlags) read(ctx context.Context, prefix string) (all *pb.ListResponse, missing, err error) {
	err = f.access.call(ctx, func(service api) error {
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
			row(t, name, lock.Mode, cut(p.Holder, maxNamed), p.User, number(p.Token), sinceText(p.Since), lockview.Age(p.Age),
				roundText(p.TtlLeft), len(lock.Waiters), waiter)
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

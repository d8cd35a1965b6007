package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/progress"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

// checkWait bounds how long bench waits for the lock of its check.
const checkWait = 10 * time.Second

// benchFlags are the flags of bench.
type benchFlags struct {
	access  *access
	output  *output
	works   []string
	workers int
	clients int
	leases  int
	length  time.Duration
	warmUp  time.Duration
	prefix  string
	mode    string
}

func setUpBench(c *cobra.Command) {
	f := &benchFlags{}
	f.access, f.output = addRedisAccess(c), addOutput(c)
	flags := c.Flags()
	flags.StringSliceVar(&f.works, "work", []string{string(load.Own), string(load.Contended)},
		"workloads, one after the other: own, contended, hold")
	flags.IntVar(&f.workers, "workers", 16, "number of workers")
	flags.IntVar(&f.clients, "clients", 1, "number of clients that the workers share, each with its own connection and "+
		"session; at most one for each worker")
	flags.IntVar(&f.leases, "leases", 1000, "number of locks that the workload hold acquires")
	flags.DurationVar(&f.length, "duration", 10*time.Second, "measured time of each workload other than hold")
	flags.DurationVar(&f.warmUp, "warm-up", time.Second, "time before the measurement of each workload other than hold")
	flags.StringVar(&f.prefix, "prefix", "bench/", "prefix of the names of all locks")
	flags.StringVar(&f.mode, "mode", "", "fail unless the locks have this mode: efficiency or correctness")
	c.RunE = interruptible(func(c *cobra.Command, _ []string) error {
		if err := positive(flags, "duration", "warm-up"); err != nil {
			return err
		}
		works, options, err := f.validate()
		if err != nil {
			return usageError(err)
		}
		return f.run(c, works, options)
	})
}

// validate returns the workloads, and the options of every acquisition.
func (f *benchFlags) validate() ([]load.Work, []lease.AcquireOption, error) {
	if f.workers < 1 || f.workers > 10_000 {
		return nil, nil, fmt.Errorf("--workers (%d) must be between 1 and 10000", f.workers)
	}
	if f.clients < 1 || f.clients > f.workers {
		return nil, nil, fmt.Errorf("--clients (%d) must be between 1 and --workers (%d)", f.clients, f.workers)
	}
	var works []load.Work
	for _, name := range f.works {
		work := load.Work{Kind: load.Kind(name), Workers: f.workers, Clients: f.clients}
		switch work.Kind {
		case load.Own, load.Contended:
		case load.Hold:
			if work.Leases = f.leases; f.leases < f.workers {
				return nil, nil, fmt.Errorf("--leases (%d) must be at least --workers (%d)", f.leases, f.workers)
			}
		default:
			return nil, nil, fmt.Errorf("--work (%s) must be own, contended or hold, or several of them separated by commas",
				name)
		}
		works = append(works, work)
	}
	if len(works) == 0 {
		return nil, nil, errors.New("--work must name a workload: own, contended or hold")
	}
	if f.mode == "" {
		return works, nil, nil
	}
	mode, err := lease.ParseMode(f.mode)
	if err != nil {
		return nil, nil, fmt.Errorf("--mode: %w", err)
	}
	return works, []lease.AcquireOption{lease.WithMode(mode)}, nil
}

// run measures the workloads one after the other, and prints the figures of those that
// have begun.
func (f *benchFlags) run(c *cobra.Command, works []load.Work, options []lease.AcquireOption) error {
	ctx := c.Context()
	target := &benchTarget{flags: f, options: options}
	prefix := f.prefix + defaultHolder() + "/" // other runs have other names
	mode, err := target.check(ctx, prefix)
	if err != nil {
		if errors.Is(err, lease.ErrForbidden) {
			return fmt.Errorf("%w; leased bench needs the right acquire:%s*: add it with 'leased user allow', or choose "+
				"another --prefix", err, f.prefix)
		}
		return err
	}
	fmt.Fprintf(os.Stderr, "leased: loading the cluster with %d workers, locks below %s in %s mode; Ctrl-C stops and "+
		"releases all locks\n", f.workers, prefix, mode)
	rows := []benchRow{}
	for _, w := range works {
		var result load.Result
		result, err = f.measure(ctx, target.Open, w, prefix+string(w.Kind)+"/")
		if result.Elapsed > 0 {
			rows = append(rows, newBenchRow(w.Kind, mode, f.clients, result))
		}
		if err != nil {
			break
		}
	}
	if printErr := f.print(c, rows); printErr != nil {
		return printErr
	}
	return f.outcome(ctx, rows, err)
}

// measure measures one workload and shows its progress.
func (f *benchFlags) measure(ctx context.Context, target load.Target, w load.Work, prefix string) (load.Result, error) {
	line := progress.New(os.Stderr, time.Now)
	defer line.End()
	return load.Run(ctx, target, w, load.Options{Prefix: prefix, WarmUp: f.warmUp, Length: f.length, Progress: line})
}

// outcome returns the error of the command: a signal, a failed workload, or a workload in
// which no operation succeeded. It prints one of the errors that operations had.
func (f *benchFlags) outcome(ctx context.Context, rows []benchRow, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Pairs == 0 {
			return &codeError{wire.ExitError, fmt.Errorf("the workload %s completed no operation: %s", r.Work,
				cmp.Or(oneLine(r.FirstError), "the service was too slow; measure for longer with --duration"))}
		}
		if r.Errors > 0 {
			fmt.Fprintf(os.Stderr, "leased: %d operations of the workload %s failed, one of them with: %s\n", r.Errors, r.Work,
				oneLine(r.FirstError))
		}
	}
	return nil
}

// benchRow has the figures of a workload.
type benchRow struct {
	Work         string  `json:"work"`
	Mode         string  `json:"mode"`
	Workers      int     `json:"workers"`
	Clients      int     `json:"clients"`
	Seconds      float64 `json:"seconds"`
	Pairs        int64   `json:"pairs"`
	Rate         float64 `json:"rate"`
	AcquireP50ms float64 `json:"acquireP50Ms"`
	AcquireP99ms float64 `json:"acquireP99Ms"`
	PairP50ms    float64 `json:"pairP50Ms"`
	PairP99ms    float64 `json:"pairP99Ms"`
	Fairness     float64 `json:"fairness"`
	Errors       int64   `json:"errors"`
	FirstError   string  `json:"firstError,omitempty"`
}

func newBenchRow(work load.Kind, mode lease.Mode, clients int, r load.Result) benchRow {
	ms := func(h *load.Histogram, part float64) float64 {
		return float64(h.Quantile(part)) / float64(time.Millisecond)
	}
	return benchRow{Work: string(work), Mode: mode.String(), Workers: len(r.Grants), Clients: clients,
		Seconds: r.Elapsed.Seconds(), Pairs: r.Pairs, Rate: r.Rate(),
		AcquireP50ms: ms(r.Acquire, 0.5), AcquireP99ms: ms(r.Acquire, 0.99),
		PairP50ms: ms(r.Pair, 0.5), PairP99ms: ms(r.Pair, 0.99),
		Fairness: r.Fairness(), Errors: r.Errors, FirstError: r.FirstError}
}

// print writes the figures as a table or as JSON.
func (f *benchFlags) print(c *cobra.Command, rows []benchRow) error {
	if len(rows) == 0 && f.output.format != "json" {
		return nil
	}
	return f.output.print(c, map[string]any{"results": rows}, func(t *tabwriter.Writer) {
		row(t, "WORK", "MODE", "WORKERS", "CLIENTS", "PAIRS/S", "ACQUIRE P50", "P99", "PAIR P50", "P99", "FAIRNESS", "ERRORS")
		for _, r := range rows {
			pair50, pair99 := milliseconds(r.PairP50ms), milliseconds(r.PairP99ms)
			if r.Work == string(load.Hold) { // releases are not measured
				pair50, pair99 = "", ""
			}
			row(t, r.Work, r.Mode, r.Workers, r.Clients, fmt.Sprintf("%.0f", r.Rate),
				milliseconds(r.AcquireP50ms), milliseconds(r.AcquireP99ms), pair50, pair99,
				fmt.Sprintf("%.2f", r.Fairness), r.Errors)
		}
	})
}

func milliseconds(ms float64) string { return fmt.Sprintf("%.2f ms", ms) }

// benchTarget is the service under load.
type benchTarget struct {
	flags   *benchFlags
	options []lease.AcquireOption
}

// Open connects a client.
func (t *benchTarget) Open(ctx context.Context) (load.Client, error) {
	connected, err := t.flags.access.dial(ctx, client.WithLogger(slog.New(slog.DiscardHandler)),
		client.WithLeaseOptions(lease.WithName("bench")))
	if err != nil {
		return nil, err
	}
	return benchClient{connected, t.options}, nil
}

// check acquires and releases one lock, and returns its mode. Missing rights and a
// service that does not answer are reported before any load.
func (t *benchTarget) check(ctx context.Context, prefix string) (mode lease.Mode, err error) {
	opened, err := t.Open(ctx)
	if err != nil {
		return mode, err
	}
	defer func() { err = errors.Join(err, opened.Close(context.WithoutCancel(ctx))) }()
	limited := append(slices.Clone(t.options), lease.WithWaitLimit(checkWait))
	l, err := opened.(benchClient).Client.Acquire(ctx, fencing.Resource(prefix+"check"), limited...)
	if err != nil {
		return mode, err
	}
	return l.Mode(), l.Release(context.WithoutCancel(ctx))
}

// benchClient is a client of the load.
type benchClient struct {
	*lease.Client
	options []lease.AcquireOption
}

// Acquire waits for the lock.
func (c benchClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	l, err := c.Client.Acquire(ctx, fencing.Resource(name), c.options...)
	if err != nil {
		return load.Held{}, err
	}
	return load.Held{Token: uint64(l.Token()), Release: l.Release}, nil
}

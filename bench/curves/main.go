package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/progress"
)

// bench has the settings and collects the results.
type bench struct {
	program string // of the members; built if empty
	folder  string // of the data of the servers
	rounds  int
	length  time.Duration
	largest int
	line    *progress.Line
	run     results.Run
}

// curve is a row of the table of curves.
type curve struct {
	name    string
	measure func(ctx context.Context, b *bench) error
}

// curves are measured in this order.
var curves = []curve{
	{"waiters", measureWaiters},
	{"batch", measureBatch},
	{"sessions", measureSessions},
	{"nodes", measureNodes},
	{"leases", measureLeases}, // and snapshot
}

// warmUp is the time before each measurement.
const warmUp = 500 * time.Millisecond

func main() {
	b := &bench{line: progress.New(os.Stderr, time.Now)}
	flag.StringVar(&b.program, "leased", "", "program of the members (default: built from this repository)")
	flag.StringVar(&b.folder, "dir", os.TempDir(), "folder for the data of the servers")
	flag.IntVar(&b.rounds, "rounds", 3, "measurements of each point")
	flag.DurationVar(&b.length, "time", 2*time.Second, "length of a measurement")
	flag.IntVar(&b.largest, "max", 1_000_000, "largest number of leases, waiters or sessions")
	only := flag.String("only", "", "curves to measure, separated by commas: waiters, batch, sessions, nodes, leases (with snapshot) (default all)")
	out := flag.String("out", "curves.json", "file for the results")
	holder := flag.String("hold", "", "internal: hold leases of the members at these addresses")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := func() error {
		if *holder != "" {
			return hold(ctx, *holder, os.Stdin, os.Stdout)
		}
		return b.all(ctx, *only, *out)
	}()
	b.line.End()
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure the curves:", err)
		os.Exit(1)
	}
}

// all measures the curves. If one fails, the others are still measured, and the results lack some of its points.
func (b *bench) all(ctx context.Context, only, out string) error {
	names := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	for _, name := range names {
		if !slices.ContainsFunc(curves, func(c curve) bool { return c.name == name }) {
			return fmt.Errorf("there is no curve %q: choose from waiters, batch, sessions, nodes, leases", name)
		}
	}
	b.run = results.Run{Machine: meter.Machine(b.folder), Versions: map[string]string{}, Started: time.Now().UTC(), Command: command(), Commit: meter.Commit()}
	var failed []string
	for _, c := range curves {
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		if err := c.measure(ctx, b); err != nil {
			b.line.End()
			fmt.Fprintf(os.Stderr, "measure the curve %s: %v\n", c.name, err)
			failed = append(failed, c.name)
		}
		if err := b.run.Write(out); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("incomplete curves: %s; %s has the other figures", strings.Join(failed, ", "), out)
	}
	return nil
}

// command returns the command line for the report.
func command() string { return strings.Join(append([]string{"go run ./curves"}, os.Args[1:]...), " ") }

// add stores a measurement and shows it.
func (b *bench) add(work, target string, size map[string]int, round int, figures map[string]float64, steal float64) {
	b.run.Samples = append(b.run.Samples, results.Sample{Work: work, Target: target, Params: size, Round: round, Figures: figures, Steal: steal})
	b.line.Show(fmt.Sprintf("%s, round %d of %d: %s %v: %s", work, round, b.rounds, target, size, describe(figures)))
}

// describe lists figures by name.
func describe(figures map[string]float64) string {
	var parts []string
	for name, value := range figures {
		parts = append(parts, fmt.Sprintf("%s %.4g", name, value))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// upTo returns the sizes that are within the limit.
func (b *bench) upTo(sizes ...int) (within []int) {
	for _, size := range sizes {
		if size <= b.largest {
			within = append(within, size)
		}
	}
	return within
}

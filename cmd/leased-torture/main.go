//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/proptest/torture"
)

// exitInterrupted is the exit code after a signal that ends the program.
const exitInterrupted = 128 + int(syscall.SIGINT)

func main() {
	logging.Disable() // of go-redis: the errors of calls are reported once, by their callers
	err := newTorture().ExecuteContext(context.Background())
	if err != nil {
		fmt.Fprintf(os.Stderr, "leased-torture: %v\n", err)
	}
	switch {
	case errors.Is(err, context.Canceled):
		os.Exit(exitInterrupted)
	case err != nil:
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	torture.Config
	scenario, report, picture string
	others                    []string
	keep                      bool
}

const longHelp = `Start three members, five Redis nodes, a PostgreSQL server behind a gate, and workers that write under
locks of both modes. Then kill, stop, partition and empty them, migrate locks between the modes, and check everything
that happened against the promises. Everything runs on this machine, in a temporary folder that is removed at the end.

Scenarios:
  random      all faults at random
  emptied     all Redis nodes lose their data at once, at least five times
  leaderless  two of three members are down, and locks in efficiency mode are still granted
  postgres    locks in PostgreSQL, without members: backends and the server are killed, and a standby that missed
              grants takes over

It needs redis-server and PostgreSQL. Partitions need root and ip, disk errors need strace, clock faults need
libfaketime; without them the other faults are injected, and the report says what is missing.`

func newTorture() *cobra.Command {
	o := &options{}
	c := &cobra.Command{Use: "leased-torture",
		Short: "Inject faults into a cluster of real processes and check the promises", Long: longHelp,
		Example: "  leased-torture --duration 1m --report torture.json --picture torture.html\n" +
			"  leased-torture --switches 50\n" +
			"  leased-torture --scenario leaderless --duration 1m\n" +
			"  PYTHONPATH=sdk/python/src leased-torture --worker 'python3 sdk/python/tests/torture_worker.py' --worker " +
			"'node sdk/typescript/test/torture-worker.js'",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true}
	flags := c.Flags()
	flags.StringVar(&o.Leased, "leased", "",
		"the leased program to test (default: the one beside this program, else go build builds it)")
	flags.StringVar(&o.scenario, "scenario", string(torture.Random),
		"faults to inject: random, emptied, leaderless or postgres")
	flags.DurationVar(&o.Duration, "duration", time.Minute, "how long faults are injected")
	flags.IntVar(&o.Switches, "switches", 0, "continue until this many mode changes are complete (scenario random)")
	flags.Uint64Var(&o.Seed, "seed", 0, "selects the faults and their order (default: random)")
	flags.IntVar(&o.Workers, "workers", torture.DefaultWorkers, "number of worker processes")
	flags.StringArrayVar(&o.others, "worker", nil,
		"command line of a worker in another language, which takes turns with the Go worker; may be repeated")
	flags.StringVar(&o.report, "report", "", "write the counts to this file, as JSON")
	flags.StringVar(&o.picture, "picture", "", "draw the first violation, or else a rejected write, to this HTML file")
	flags.BoolVar(&o.keep, "keep", false, "keep the members' logs and data")
	c.RunE = func(c *cobra.Command, _ []string) error {
		for _, command := range o.others {
			o.Others = append(o.Others, strings.Fields(command))
		}
		if !c.Flags().Changed("seed") {
			o.Seed = rand.Uint64()
		}
		return o.run(c)
	}
	c.AddCommand(&cobra.Command{Use: "worker", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return torture.Work(c.Context(), os.Stdin, os.Stdout) }})
	return c
}

func (o *options) run(c *cobra.Command) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the path of leased-torture: %w", err)
	}
	dir, err := os.MkdirTemp("", "leased-torture-")
	if err != nil {
		return fmt.Errorf("create a temporary folder: %w", err)
	}
	if o.Leased, err = o.findLeased(self, dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	o.Scenario, o.Dir, o.Progress = torture.Scenario(o.scenario), dir, c.ErrOrStderr()
	o.Worker = []string{self, "worker"}
	result, err := torture.Run(ctx, o.Config)
	violated := result != nil && len(result.Violations) > 0
	if o.keep || violated || err != nil && ctx.Err() == nil {
		fmt.Fprintf(c.ErrOrStderr(), "logs and data are in %s\n", dir)
	} else {
		_ = os.RemoveAll(dir)
	}
	if result != nil {
		fmt.Fprint(c.OutOrStdout(), result)
		err = errors.Join(err, o.write(result))
	}
	if err == nil && violated {
		err = errors.New("a promise was violated; see the list above, and --picture for a drawing")
	}
	return err
}

// findLeased returns the path of the leased program.
func (o *options) findLeased(self, dir string) (string, error) {
	if o.Leased != "" {
		return o.Leased, nil
	}
	beside := filepath.Join(filepath.Dir(self), "leased")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	built, err := testserver.BuildLeased(dir)
	if err != nil {
		return "", fmt.Errorf("%w\ngive --leased PATH, or run this in the source folder", err)
	}
	return built, nil
}

// write writes the files that were requested.
func (o *options) write(result *torture.Result) error {
	if o.report != "" {
		text, err := json.MarshalIndent(result, "", "  ")
		if err != nil {
			return fmt.Errorf("encode the report: %w", err)
		}
		if err := os.WriteFile(o.report, append(text, '\n'), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if o.picture == "" {
		return nil
	}
	f, err := os.Create(o.picture)
	if err != nil {
		return fmt.Errorf("create the picture: %w", err)
	}
	if err := errors.Join(result.Picture(f), f.Close()); err != nil {
		return fmt.Errorf("write the picture %s: %w", o.picture, err)
	}
	return nil
}

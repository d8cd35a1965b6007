package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/proptest/torture"
)

func newTorture() *cobra.Command {
	var duration time.Duration
	var seed uint64
	var workers int
	var report, picture string
	var keep bool
	c := &cobra.Command{Use: "torture", Short: "Break a cluster of real processes, and see whether the promises hold",
		Long: "Start three members, five Redis masters, a PostgreSQL behind a gate and workers that write under locks of\n" +
			"both modes; then kill, stop, cut off, empty and break them at random, and hold everything that happened\n" +
			"against the promises. All of it runs on this machine, in a temporary folder, and is gone in the end.\n\n" +
			"It needs redis-server and PostgreSQL. Partitions need root and ip, disk errors strace, moved clocks\n" +
			"libfaketime; without them the rest is done, and the report says what was not.",
		Example: "  leased torture --duration 1m --report torture.json --picture torture.html",
		Args:    cobra.NoArgs}
	c.Flags().DurationVar(&duration, "duration", time.Minute, "how long to break things")
	c.Flags().Uint64Var(&seed, "seed", 0, "decides what is broken, and when (default: a random one)")
	c.Flags().IntVar(&workers, "workers", torture.DefaultWorkers, "number of worker processes")
	c.Flags().StringVar(&report, "report", "", "write the figures to this file, as JSON")
	c.Flags().StringVar(&picture, "picture", "", "draw the first violation to this file, as a page of HTML; if there is none, a refused write")
	c.Flags().BoolVar(&keep, "keep", false, "keep logs and data of the members")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !c.Flags().Changed("seed") {
			seed = rand.Uint64()
		}
		ctx, stop := untilInterrupted(c.Context())
		defer stop()
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		dir, err := os.MkdirTemp("", "leased-torture-")
		if err != nil {
			return err
		}
		result, err := torture.Run(ctx, torture.Config{Duration: duration, Seed: seed, Workers: workers, Dir: dir, Progress: c.ErrOrStderr(),
			Member: []string{self, "serve"}, Worker: []string{self, "torture", "worker"}})
		broken := result != nil && len(result.Violations) > 0
		if keep || broken || err != nil && ctx.Err() == nil {
			fmt.Fprintf(c.ErrOrStderr(), "logs and data are in %s\n", dir)
		} else {
			_ = os.RemoveAll(dir)
		}
		if result != nil {
			fmt.Fprint(c.OutOrStdout(), result)
			err = errors.Join(err, writeResult(result, report, picture))
		}
		if err == nil && broken {
			err = errors.New("a promise was broken: see above, and --picture")
		}
		return err
	}
	c.AddCommand(&cobra.Command{Use: "worker", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return torture.Work(c.Context(), os.Stdin, os.Stdout) }})
	return c
}

// writeResult writes the files that were asked for.
func writeResult(result *torture.Result, report, picture string) error {
	if report != "" {
		text, err := json.MarshalIndent(result, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(report, append(text, '\n'), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if picture == "" {
		return nil
	}
	return writePicture(picture, result.Picture)
}

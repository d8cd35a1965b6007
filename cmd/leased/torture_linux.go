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
	var workers, switches int
	var scenario string
	var report, picture string
	var keep bool
	c := &cobra.Command{Use: "torture", Short: "Break a cluster of real processes, and check whether the promises hold",
		Long: "Start three members, five Redis nodes, a PostgreSQL behind a gate and workers that write under locks of\n" +
			"both modes; then kill, stop, partition and empty them, move locks between the modes, and check everything\n" +
			"that happened against the promises. All of it runs on this machine, in a temporary folder that is removed in the end.\n\n" +
			"Scenarios: random, all faults at random; emptied, all Redis nodes lose their data at once, at least five times;\n" +
			"leaderless, two of three members are down and locks in efficiency mode go on.\n\n" +
			"It needs redis-server and PostgreSQL. Partitions need root and ip, disk errors strace, moved clocks\n" +
			"libfaketime; without them the other faults are injected, and the report says what is missing.",
		Example: "  leased torture --duration 1m --report torture.json --picture torture.html\n" +
			"  leased torture --switches 50\n" +
			"  leased torture --scenario leaderless --duration 1m",
		Args: cobra.NoArgs}
	c.Flags().StringVar(&scenario, "scenario", string(torture.Random), "what to break: random, emptied or leaderless")
	c.Flags().DurationVar(&duration, "duration", time.Minute, "how long faults last")
	c.Flags().IntVar(&switches, "switches", 0, "go on until so many changes of mode are complete (scenario random)")
	c.Flags().Uint64Var(&seed, "seed", 0, "decides what is broken, and when (default: a random one)")
	c.Flags().IntVar(&workers, "workers", torture.DefaultWorkers, "number of worker processes")
	c.Flags().StringVar(&report, "report", "", "write the figures to this file, as JSON")
	c.Flags().StringVar(&picture, "picture", "", "draw the first violation to this file, as a page of HTML; without one, a refused write")
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
		result, err := torture.Run(ctx, torture.Config{Scenario: torture.Scenario(scenario), Duration: duration, Switches: switches, Seed: seed, Workers: workers, Dir: dir, Progress: c.ErrOrStderr(),
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

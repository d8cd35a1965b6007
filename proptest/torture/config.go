//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Limits and defaults of a Config.
const (
	DefaultWorkers = 8
	maxWorkers     = 64
)

// Scenario selects the faults of a run.
type Scenario string

// The scenarios.
const (
	// Random injects all faults at random and migrates locks between the modes. It is
	// the default.
	Random Scenario = "random"
	// Emptied empties all Redis nodes at once, at least LeastEmptied times. The
	// efficiency mode must recover automatically each time.
	Emptied Scenario = "emptied"
	// Leaderless kills one of three members and pauses another. Locks in efficiency
	// mode must still be granted, directly and through the last member.
	Leaderless Scenario = "leaderless"
	// Postgres has no members and no Redis nodes: the locks are in a PostgreSQL of their own. It
	// kills backends and the server, and fails over to an asynchronous standby that missed
	// grants.
	Postgres Scenario = "postgres"
)

// scenarios has the faults of each scenario, and the classes of the locks that its workers use.
var scenarios = map[Scenario]struct {
	faults  func(*nemesis, context.Context)
	classes []string
}{
	Random:     {(*nemesis).random, []string{correctness, efficiency, switched}},
	Emptied:    {(*nemesis).emptyRepeatedly, []string{efficiency}},
	Leaderless: {(*nemesis).leaderless, []string{efficiency}},
	Postgres:   {(*nemesis).postgres, []string{inPostgres}},
}

// LeastEmptied is the least number of times that scenario Emptied empties all Redis nodes.
const LeastEmptied = 5

// Config configures a run.
type Config struct {
	// Scenario selects the faults. Default: Random.
	Scenario Scenario
	// Duration is the time in which faults are injected. Start and end of the run take a
	// few seconds more.
	Duration time.Duration
	// Switches is the least number of completed migrations in scenario Random. The run
	// continues until then.
	Switches int
	// Seed determines the sequence of faults.
	Seed uint64
	// Workers is the number of worker processes. Default: DefaultWorkers.
	Workers int
	// Leased is the program of the members.
	Leased string
	// Worker is the command line of a process that calls Work.
	Worker []string
	// Others are the command lines of workers in other languages. They take turns with
	// Worker.
	Others [][]string
	// Dir is the folder of data and logs; it must exist.
	Dir string
	// Progress receives one line per second. Nil discards them.
	Progress io.Writer
}

func (c *Config) validate() error {
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.Scenario == "" {
		c.Scenario = Random
	}
	switch _, known := scenarios[c.Scenario]; {
	case !known:
		return fmt.Errorf("scenario %q is not one of %q", c.Scenario, slices.Sorted(maps.Keys(scenarios)))
	case c.Duration <= 0:
		return fmt.Errorf("duration (%v) must be above 0", c.Duration)
	case c.Switches != 0 && c.Scenario != Random:
		return fmt.Errorf("scenario %q has no migrations: switches (%d) must be 0", c.Scenario, c.Switches)
	case c.Workers < 2 || c.Workers > maxWorkers:
		return fmt.Errorf("workers (%d) must be from 2 to %d: a single worker has no contention", c.Workers, maxWorkers)
	case c.Leased == "" || len(c.Worker) == 0 || c.Dir == "":
		return errors.New("leased, worker and dir must be set")
	}
	return nil
}

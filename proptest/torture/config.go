//go:build linux

package torture

import (
	"errors"
	"fmt"
	"io"
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
)

// Scenarios lists all scenarios.
var Scenarios = []Scenario{Random, Emptied, Leaderless}

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
	// Member is the command line of a member. Settings are appended as flags of
	// `leased serve`.
	Member []string
	// Worker is the command line of a process that calls Work.
	Worker []string
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
	switch {
	case !slices.Contains(Scenarios, c.Scenario):
		return fmt.Errorf("scenario %q is not one of %q", c.Scenario, Scenarios)
	case c.Duration <= 0:
		return fmt.Errorf("duration (%v) must be above 0", c.Duration)
	case c.Switches != 0 && c.Scenario != Random:
		return fmt.Errorf("scenario %q has no migrations: switches (%d) must be 0", c.Scenario, c.Switches)
	case c.Workers < 2 || c.Workers > maxWorkers:
		return fmt.Errorf("workers (%d) must be from 2 to %d: a single worker has no contention", c.Workers, maxWorkers)
	case len(c.Member) == 0 || len(c.Worker) == 0 || c.Dir == "":
		return errors.New("member, worker and dir must be set")
	}
	return nil
}

// classes returns the classes of locks that workers use.
func (c *Config) classes() []string {
	if c.Scenario == Random {
		return []string{correctness, efficiency, switched}
	}
	return []string{efficiency}
}

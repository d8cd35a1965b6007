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

// Scenario is a set of faults.
type Scenario string

// The scenarios.
const (
	// Random breaks everything at random, and moves locks between the modes. It is
	// the default.
	Random Scenario = "random"
	// Emptied empties all Redis nodes at once, again and again, at least
	// LeastEmptied times. Every time the efficiency mode has to come back by itself.
	Emptied Scenario = "emptied"
	// Leaderless kills one of three members and stops another. Locks in efficiency
	// mode have to be granted all the time, directly and through the last member.
	Leaderless Scenario = "leaderless"
)

// Scenarios are all of them.
var Scenarios = []Scenario{Random, Emptied, Leaderless}

// LeastEmptied is how often the scenario Emptied empties all Redis nodes at least.
const LeastEmptied = 5

// Config says what to run.
type Config struct {
	// Scenario says what is broken. Default: Random.
	Scenario Scenario
	// Duration is how long faults last. Start and end of the run take a few seconds
	// more.
	Duration time.Duration
	// Switches is the least number of changes of mode in scenario Random: the run
	// goes on until that many are complete.
	Switches int
	// Seed decides what is broken, and when.
	Seed uint64
	// Workers is the number of worker processes. Default: DefaultWorkers.
	Workers int
	// Member is the command line of a member, without settings. They are added as
	// flags of `leased serve`.
	Member []string
	// Worker is the command line of a process that calls Work.
	Worker []string
	// Dir is the folder of data and logs; it must exist.
	Dir string
	// Progress receives one line a second. Nil discards them.
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
		return fmt.Errorf("scenario %q changes no modes: switches (%d) must be 0", c.Scenario, c.Switches)
	case c.Workers < 2 || c.Workers > maxWorkers:
		return fmt.Errorf("workers (%d) must be from 2 to %d: one alone has no competitor", c.Workers, maxWorkers)
	case len(c.Member) == 0 || len(c.Worker) == 0 || c.Dir == "":
		return errors.New("the command lines of members and workers, and a folder, must be given")
	}
	return nil
}

// classes are the locks that workers use.
func (c *Config) classes() []string {
	if c.Scenario == Random {
		return []string{correctness, efficiency, switched}
	}
	return []string{efficiency}
}

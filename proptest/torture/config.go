//go:build linux

package torture

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Limits and defaults of a Config.
const (
	DefaultWorkers = 8
	maxWorkers     = 64
)

// Config says what to run.
type Config struct {
	// Duration is how long things are broken. Starting and the end take a few
	// seconds more.
	Duration time.Duration
	// Seed decides what is broken, and when.
	Seed uint64
	// Workers is the number of worker processes. Default: DefaultWorkers.
	Workers int
	// Member is how to start a member: the program and its first arguments.
	// The settings are added as flags of `leased serve`.
	Member []string
	// Worker is how to start a process that calls Work.
	Worker []string
	// Dir is where to keep data and logs; it must exist.
	Dir string
	// Progress is told how it goes, in lines. Nil is nobody.
	Progress io.Writer
}

func (c *Config) validate() error {
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	switch {
	case c.Duration <= 0:
		return fmt.Errorf("duration (%v) must be above 0", c.Duration)
	case c.Workers < 2 || c.Workers > maxWorkers:
		return fmt.Errorf("workers (%d) must be from 2 to %d: one alone meets nobody", c.Workers, maxWorkers)
	case len(c.Member) == 0 || len(c.Worker) == 0 || c.Dir == "":
		return errors.New("the programs of members and workers, and a folder, must be given")
	}
	return nil
}

package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/testserver"
)

const (
	// startTime limits the start of a cluster.
	startTime = time.Minute
	// pollTime is the time between two checks of a server.
	pollTime = 50 * time.Millisecond
)

// Cluster is the servers of one service, with a folder for their data.
type Cluster struct {
	Servers []*testserver.Process
	// Endpoints are the addresses for clients, one for each server.
	Endpoints []string
	Dir       string

	program string // of the servers
	open    load.Target
	ready   func(ctx context.Context) error // waits until the servers grant locks
}

// Launch starts a cluster in a new folder: start adds the servers, and sets what else a cluster has. If that fails, the
// error has the output of the servers.
func (c *Cluster) Launch(ctx context.Context, dir, name string, start func(ctx context.Context) error) (err error) {
	if c.Dir, err = os.MkdirTemp(dir, name+"-"); err == nil {
		err = start(ctx)
	}
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, startTime)
		defer cancel()
		err = c.ready(limited)
	}
	if err != nil {
		for _, s := range c.Servers {
			err = errors.Join(err, fmt.Errorf("output of %s:\n%s", s.Name, s.LogEnd()))
		}
		err = fmt.Errorf("start %s: %w", name, err)
		c.Stop()
	}
	return err
}

// Open implements [Peer].
func (c *Cluster) Open(ctx context.Context) (load.Client, error) { return c.open(ctx) }

// Add starts a server, with its output in the folder.
func (c *Cluster) Add(name, program string, args ...string) error {
	s := &testserver.Process{Name: name, Args: append([]string{program}, args...), Log: filepath.Join(c.Dir, name+".log")}
	c.Servers = append(c.Servers, s)
	return s.Start()
}

// Wait waits for each server until check succeeds.
func (c *Cluster) Wait(ctx context.Context, check func(i int) error) error {
	for i, endpoint := range c.Endpoints {
		for err := check(i); err != nil; err = check(i) {
			if ctx.Err() != nil || c.Servers[i].Pid() == 0 {
				return errors.Join(fmt.Errorf("server %s: %w", endpoint, err), ctx.Err())
			}
			time.Sleep(pollTime)
		}
	}
	return nil
}

// killFirst kills the first server that leads.
func (c *Cluster) killFirst(leads func(i int) bool) error {
	for i := range c.Servers {
		if leads(i) {
			c.Servers[i].Kill()
			return nil
		}
	}
	return errors.New("no server leads")
}

// Pids returns the process ids of the servers that run.
func (c *Cluster) Pids() (pids []int) {
	for _, s := range c.Servers {
		if pid := s.Pid(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Restart starts the servers that do not run.
func (c *Cluster) Restart() error {
	for _, s := range c.Servers {
		if s.Pid() != 0 {
			continue
		}
		if err := s.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Restore starts killed servers again, and waits until all grant locks.
func (c *Cluster) Restore(ctx context.Context) error {
	if err := c.Restart(); err != nil {
		return err
	}
	return c.ready(ctx)
}

// Address returns the endpoints for a process that attaches to the cluster.
func (c *Cluster) Address() string {
	text, _ := json.Marshal(c.Endpoints) // strings can always be encoded
	return string(text)
}

// Stop kills the servers and removes their data.
func (c *Cluster) Stop() {
	for _, s := range c.Servers {
		s.Kill()
	}
	if c.Dir != "" {
		_ = os.RemoveAll(c.Dir)
	}
}

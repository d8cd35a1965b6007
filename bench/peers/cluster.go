package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	"github.com/leased-project/leased/internal/testserver"
)

const (
	// nodes is the number of servers of a replicated service.
	nodes = 3
	// startTime limits the start of a cluster.
	startTime = time.Minute
	// pollTime is the time between two checks of a server.
	pollTime = 50 * time.Millisecond
)

// Cluster is running servers.
type Cluster struct {
	Servers []*testserver.Process
	// Endpoints are the addresses for clients. In a replicated service, that of Servers[i] is Endpoints[i].
	Endpoints []string
	// Version is the version of the servers, and of the client library if that matters.
	Version string
	// Profiles are the addresses of the members of leased for CPU profiles, as net/http/pprof serves them, and Redis
	// those of their Redis nodes.
	Profiles, Redis []string

	service              // if it is replicated
	dir      string      // of the service, for configurations, data and logs
	program  string      // of the service
	internal [2][]string // addresses of the servers for each other
	stops    []func()    // in the order of the starts
}

// service is how the servers of a replicated service run.
type service struct {
	name string
	// built returns the program of the servers.
	built func(ctx context.Context, dir string) (string, error)
	// args returns the arguments of a server, after it has written its configuration.
	args func(c *Cluster, i int) ([]string, error)
	// ready fails while a server does not take part.
	ready func(ctx context.Context, endpoint string) error
	// grants fails while the servers grant no locks.
	grants func(ctx context.Context, endpoints []string) error
	// leads reports whether a server leads, if one can be killed.
	leads func(ctx context.Context, endpoint string) bool
	// version returns the version of the servers.
	version func(c *Cluster) string
}

// start starts the servers in a new folder. If that fails, the error has their output.
func (s service) start(ctx context.Context, dir string) (*Cluster, error) {
	c := &Cluster{service: s}
	err := c.launch(ctx, dir)
	if err == nil {
		c.Version = s.version(c)
		return c, nil
	}
	for _, server := range c.Servers {
		err = errors.Join(err, fmt.Errorf("output of %s:\n%s", server.Name, server.LogEnd()))
	}
	c.Stop()
	return nil, fmt.Errorf("start %s: %w", s.name, err)
}

func (c *Cluster) launch(ctx context.Context, dir string) (err error) {
	if c.program, err = c.built(ctx, dir); err != nil {
		return err
	}
	if c.dir, err = os.MkdirTemp(dir, c.name+"-"); err != nil {
		return err
	}
	c.stops = append(c.stops, func() { _ = os.RemoveAll(c.dir) })
	addresses, err := testserver.FreeAddresses(3 * nodes)
	if err != nil {
		return err
	}
	c.Endpoints, c.internal = addresses[:nodes], [2][]string{addresses[nodes : 2*nodes], addresses[2*nodes:]}
	for i := range nodes {
		args, err := c.args(c, i)
		if err != nil {
			return err
		}
		name := nodeName(i)
		server := &testserver.Process{Name: name, Args: append([]string{c.program}, args...),
			Log: filepath.Join(c.dir, name+".log")}
		c.add(server, server.Kill)
		if err := server.Start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return c.settle(ctx)
}

// nodeName returns the name of a server of a replicated service.
func nodeName(i int) string { return fmt.Sprintf("n%d", i) }

// add adds a server, and what stops it.
func (c *Cluster) add(server *testserver.Process, stop func()) {
	c.Servers, c.stops = append(c.Servers, server), append(c.stops, stop)
}

// join adds the servers of another cluster, which stop with this one.
func (c *Cluster) join(other *Cluster) {
	c.Servers, c.stops = append(c.Servers, other.Servers...), append(c.stops, other.Stop)
}

// settle waits until every server takes part, and then for a grant.
func (c *Cluster) settle(ctx context.Context) error {
	for i, endpoint := range c.Endpoints {
		if err := c.wait(ctx, i, func() error { return c.ready(ctx, endpoint) }); err != nil {
			return err
		}
	}
	return c.wait(ctx, 0, func() error { return c.grants(ctx, c.Endpoints) })
}

// wait repeats a check while it fails and a server runs.
func (c *Cluster) wait(ctx context.Context, i int, check func() error) error {
	for err := check(); err != nil; err = check() {
		if ctx.Err() != nil || c.Servers[i].Pid() == 0 {
			return errors.Join(fmt.Errorf("server %s: %w", c.Endpoints[i], err), ctx.Err())
		}
		time.Sleep(pollTime)
	}
	return nil
}

// Leader returns the number of the server that leads.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	for i, endpoint := range c.Endpoints {
		if c.leads != nil && c.Servers[i].Pid() != 0 && c.leads(ctx, endpoint) {
			return i, nil
		}
	}
	return 0, errors.New("no server leads")
}

// KillLeader ends the leader with SIGKILL.
func (c *Cluster) KillLeader(ctx context.Context) error {
	leader, err := c.Leader(ctx)
	if err == nil {
		c.Servers[leader].Kill()
	}
	return err
}

// Restore starts killed servers again, and waits until they take part.
func (c *Cluster) Restore(ctx context.Context) error {
	for _, s := range c.Servers {
		if s.Pid() != 0 {
			continue
		}
		if err := s.Start(); err != nil {
			return err
		}
	}
	return c.settle(ctx)
}

// Pids returns the process ids of the servers that run, and then of their children: PostgreSQL has a process for each
// connection.
func (c *Cluster) Pids() (pids []int) {
	for _, s := range c.Servers {
		if pid := s.Pid(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return append(pids, children(pids)...)
}

// children returns the ids of processes whose parents are among these.
func children(parents []int) (pids []int) {
	processes, _ := procfs.AllProcs()
	for _, p := range processes {
		if stat, err := p.Stat(); err == nil && slices.Contains(parents, stat.PPID) { // else it has exited
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// Stop kills the servers and removes their data.
func (c *Cluster) Stop() {
	for _, stop := range slices.Backward(c.stops) {
		stop()
	}
}

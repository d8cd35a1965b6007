// Package etcd runs a cluster of three etcd servers and takes locks with the mutexes of
// its client library: one client, with a session for each worker.
package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/process"
	"github.com/leased-project/leased/internal/load"
)

const (
	nodes     = 3
	startTime = time.Minute
)

// program is the server, in the version of go.mod.
var program = &process.Program{Module: "go.etcd.io/etcd/server/v3", Package: "."}

// Kind returns the row of the table.
func Kind() peers.Kind {
	return peers.Kind{
		Name:            "etcd",
		Start:           start,
		ClientPerWorker: true,
		Workloads:       []string{"W1", "W2", "W3", "W4", "W6"},
		Attach: func(address string) (load.Target, error) {
			t := &target{}
			return t, json.Unmarshal([]byte(address), &t.endpoints)
		},
	}
}

// cluster is three running servers.
type cluster struct {
	target
	dir     string
	program string
	servers process.Servers
}

var _ peers.Killer = (*cluster)(nil)

// start builds the server and starts three of them, with their default settings.
func start(ctx context.Context, dir string) (_ peers.Peer, err error) {
	c := &cluster{}
	defer func() {
		if err != nil {
			err = c.servers.Explain(err)
			err = fmt.Errorf("start etcd: %w", err)
			c.Stop()
		}
	}()
	if c.program, err = program.Path(ctx, dir); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp(dir, "etcd-"); err != nil {
		return nil, err
	}
	addresses, err := process.FreeAddresses(2 * nodes)
	if err != nil {
		return nil, err
	}
	var initial []string
	for i := range nodes {
		initial = append(initial, fmt.Sprintf("n%d=http://%s", i, addresses[nodes+i]))
	}
	for i := range nodes {
		name, client, peer := fmt.Sprintf("n%d", i), "http://"+addresses[i], "http://"+addresses[nodes+i]
		s, err := process.Start(filepath.Join(c.dir, name+".log"), c.program, "--name="+name, "--data-dir="+filepath.Join(c.dir, name),
			"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer,
			"--initial-advertise-peer-urls="+peer, "--initial-cluster="+strings.Join(initial, ","), "--log-level=warn")
		if err != nil {
			return nil, err
		}
		c.servers, c.endpoints = append(c.servers, s), append(c.endpoints, addresses[i])
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return c, c.ready(ctx)
}

// ready waits until every server knows the leader, and then for a grant.
func (c *cluster) ready(ctx context.Context) error {
	client, err := c.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	for _, endpoint := range c.endpoints {
		for {
			status, err := client.Status(ctx, endpoint)
			if err == nil && status.Leader != 0 {
				break
			}
			if ctx.Err() != nil {
				return errors.Join(err, fmt.Errorf("server %s has no leader", endpoint))
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	worker, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer worker.Close(ctx)
	held, err := worker.Acquire(ctx, "ready")
	if err != nil {
		return err
	}
	return held.Release(ctx)
}

// Address implements [peers.Peer].
func (c *cluster) Address() string {
	text, _ := json.Marshal(c.endpoints) // strings can always be encoded
	return string(text)
}

// Pids implements [peers.Peer].
func (c *cluster) Pids() []int { return c.servers.Pids() }

// Version implements [peers.Peer].
func (c *cluster) Version() string {
	text, _ := exec.Command(c.program, "--version").Output()
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "etcd Version: ")
}

// leader returns the server that leads.
func (c *cluster) leader(ctx context.Context) (*process.Process, error) {
	client, err := c.dial()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for i, endpoint := range c.endpoints {
		if status, err := client.Status(ctx, endpoint); err == nil && status.Leader == status.Header.MemberId {
			return c.servers[i], nil
		}
	}
	return nil, errors.New("no server of etcd leads")
}

// KillLeader implements [peers.Killer].
func (c *cluster) KillLeader(ctx context.Context) error {
	leader, err := c.leader(ctx)
	if err != nil {
		return err
	}
	leader.Kill()
	return nil
}

// Restore implements [peers.Killer].
func (c *cluster) Restore(ctx context.Context) error {
	if err := c.servers.Restart(); err != nil {
		return err
	}
	return c.ready(ctx)
}

// Stop implements [peers.Peer].
func (c *cluster) Stop() {
	c.servers.Kill()
	_ = os.RemoveAll(c.dir)
}

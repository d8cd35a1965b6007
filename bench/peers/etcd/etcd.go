// Package etcd runs a cluster of three etcd servers and takes locks with the mutexes of
// its client library: one client, with a session for each worker.
package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/process"
	"github.com/leased-project/leased/internal/load"
)

const (
	nodes       = 3
	dialTimeout = time.Minute
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
	process.Cluster
	program string
}

var _ peers.Killer = (*cluster)(nil)

// start builds the server and starts three of them, with their default settings.
func start(ctx context.Context, dir string) (peers.Peer, error) {
	c := &cluster{}
	return c, c.Launch(ctx, dir, "etcd", func(ctx context.Context) (err error) {
		if c.program, err = program.Path(ctx, dir); err != nil {
			return err
		}
		return c.startServers()
	}, c.ready)
}

func (c *cluster) startServers() error {
	addresses, err := process.FreeAddresses(2 * nodes)
	if err != nil {
		return err
	}
	c.endpoints, c.Endpoints = addresses[:nodes], addresses[:nodes]
	var initial []string
	for i := range nodes {
		initial = append(initial, fmt.Sprintf("n%d=http://%s", i, addresses[nodes+i]))
	}
	for i := range nodes {
		name, client, peer := fmt.Sprintf("n%d", i), "http://"+addresses[i], "http://"+addresses[nodes+i]
		if err := c.Add(name, c.program, "--name="+name, "--data-dir="+filepath.Join(c.Dir, name),
			"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer,
			"--initial-advertise-peer-urls="+peer, "--initial-cluster="+strings.Join(initial, ","), "--log-level=warn"); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until every server knows the leader, and then for a grant.
func (c *cluster) ready(ctx context.Context) error {
	client, err := c.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := c.Wait(ctx, func(i int) error {
		status, err := client.Status(ctx, c.endpoints[i])
		if err == nil && status.Leader == 0 {
			err = errors.New("it has no leader")
		}
		return err
	}); err != nil {
		return err
	}
	return peers.TryOnce(ctx, c.Open)
}

// Version implements [peers.Peer].
func (c *cluster) Version() string {
	text, _ := exec.Command(c.program, "--version").Output()
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "etcd Version: ")
}

// KillLeader implements [peers.Killer].
func (c *cluster) KillLeader(ctx context.Context) error {
	client, err := c.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	for i, endpoint := range c.endpoints {
		if status, err := client.Status(ctx, endpoint); err == nil && status.Leader == status.Header.MemberId {
			c.Servers[i].Kill()
			return nil
		}
	}
	return errors.New("no server of etcd leads")
}

// Restore implements [peers.Killer].
func (c *cluster) Restore(ctx context.Context) error {
	if err := c.Restart(); err != nil {
		return err
	}
	return c.ready(ctx)
}

// Package consul runs three Consul servers and takes locks with the sessions and keys of
// its client library: a session for each worker.
//
// The servers are built from the Go module in the folder server, which is not part of the
// benchmark's module, since its dependencies are many and old.
//
// The nouns, in reading order: cluster, the running servers; target and worker, a client
// of them.
package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/process"
	"github.com/leased-project/leased/internal/load"
)

const nodes = 3

const (
	// maxConnections is the number of connections that a server accepts from one host. The
	// default is less than the number of workers.
	maxConnections = 4096
	// module is the benchmark's; the server is a tool of the module in its folder source.
	module, source = "github.com/leased-project/leased/bench", "peers/consul/server"
	server         = "github.com/hashicorp/consul"
)

// Kind returns the row of the table.
func Kind() peers.Kind {
	return peers.Kind{Name: "consul", Start: start, ClientPerWorker: true, Attach: func(address string) (load.Target, error) {
		t := &target{}
		return t, json.Unmarshal([]byte(address), &t.endpoints)
	}}
}

// cluster is three running servers.
type cluster struct {
	target
	process.Cluster
	program string
}

var _ peers.Peer = (*cluster)(nil)

func start(ctx context.Context, dir string) (peers.Peer, error) {
	c := &cluster{}
	return c, c.Launch(ctx, dir, "consul", func(ctx context.Context) error {
		if err := c.build(ctx, dir); err != nil {
			return err
		}
		return c.startServers()
	}, c.ready)
}

// build builds the server, unless an earlier start has built it in dir. The first build on
// a machine takes minutes.
func (c *cluster) build(ctx context.Context, dir string) error {
	if dir == "" {
		dir = c.Dir
	}
	c.program = filepath.Join(dir, "consul")
	if _, err := os.Stat(c.program); err == nil {
		return nil
	}
	folder, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("find the source of %s: %w; run the benchmark in its folder", module, err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", c.program, server)
	build.Dir = filepath.Join(string(bytes.TrimSpace(folder)), source)
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", server, err, text)
	}
	return nil
}

// startServers writes the configurations and starts the servers. The settings are the
// defaults, with these exceptions: timeouts of Raft for production, and a higher limit on the
// connections from one host, since each waiting request has one.
func (c *cluster) startServers() error {
	addresses, err := process.FreeAddresses(3 * nodes)
	if err != nil {
		return err
	}
	c.endpoints, c.Endpoints = addresses[:nodes], addresses[:nodes]
	for i := range nodes {
		name := "n" + strconv.Itoa(i)
		text, err := json.Marshal(map[string]any{
			"server": true, "bootstrap_expect": nodes, "node_name": name, "data_dir": filepath.Join(c.Dir, name),
			"bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "retry_join": addresses[2*nodes:], "retry_interval": "1s",
			"ports": map[string]int{"http": port(addresses[i]), "server": port(addresses[nodes+i]), "serf_lan": port(addresses[2*nodes+i]),
				"serf_wan": -1, "dns": -1, "grpc": -1, "grpc_tls": -1},
			"performance":          map[string]int{"raft_multiplier": 1},
			"limits":               map[string]int{"http_max_conns_per_client": maxConnections},
			"connect":              map[string]bool{"enabled": false},
			"disable_update_check": true, "log_level": "WARN",
		})
		if err != nil {
			return err
		}
		file := filepath.Join(c.Dir, name+".json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		if err := c.Add(name, c.program, "agent", "-config-file="+file); err != nil {
			return err
		}
	}
	return nil
}

func port(address string) int {
	_, text, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(text)
	return n
}

// ready waits until every server grants locks.
func (c *cluster) ready(ctx context.Context) error {
	return c.Wait(ctx, func(i int) error {
		return peers.TryOnce(ctx, func(context.Context) (load.Client, error) { return c.openAt(i) })
	})
}

// Version implements [peers.Peer].
func (c *cluster) Version() string {
	text, _ := exec.Command(c.program, "version").Output()
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "Consul ") + ", " + peers.Library("api", "github.com/hashicorp/consul/api")
}

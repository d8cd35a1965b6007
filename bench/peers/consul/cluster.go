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
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/process"
	"github.com/leased-project/leased/internal/load"
)

const (
	nodes     = 3
	startTime = time.Minute
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
	dir     string
	program string
	servers process.Servers
}

var _ peers.Peer = (*cluster)(nil)

func start(ctx context.Context, dir string) (_ peers.Peer, err error) {
	c := &cluster{}
	defer func() {
		if err != nil {
			err = c.servers.Explain(err)
			err = fmt.Errorf("start Consul: %w", err)
			c.Stop()
		}
	}()
	if c.dir, err = os.MkdirTemp(dir, "consul-"); err != nil {
		return nil, err
	}
	if err := c.build(ctx, dir); err != nil {
		return nil, err
	}
	if err := c.startServers(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return c, c.ready(ctx)
}

// build builds the server, unless an earlier start has built it in dir. The first build on
// a machine takes minutes.
func (c *cluster) build(ctx context.Context, dir string) error {
	if dir == "" {
		dir = c.dir
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
	c.endpoints = addresses[:nodes]
	for i := range nodes {
		name := "n" + strconv.Itoa(i)
		text, err := json.Marshal(map[string]any{
			"server": true, "bootstrap_expect": nodes, "node_name": name, "data_dir": filepath.Join(c.dir, name),
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
		file := filepath.Join(c.dir, name+".json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		s, err := process.Start(filepath.Join(c.dir, name+".log"), c.program, "agent", "-config-file="+file)
		if err != nil {
			return err
		}
		c.servers = append(c.servers, s)
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
	for i := range c.endpoints {
		for {
			err := c.tryOnce(ctx, i)
			if err == nil {
				break
			}
			if ctx.Err() != nil || !c.servers[i].Running() {
				return errors.Join(fmt.Errorf("server %s of Consul grants no locks: %w", c.endpoints[i], err), ctx.Err())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

// tryOnce takes and releases a lock through one server.
func (c *cluster) tryOnce(ctx context.Context, endpoint int) error {
	w, err := c.openAt(endpoint)
	if err != nil {
		return err
	}
	defer w.Close(ctx)
	held, err := w.Acquire(ctx, "ready")
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
	text, _ := exec.Command(c.program, "version").Output()
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "Consul ") + ", " + peers.Library("api", "github.com/hashicorp/consul/api")
}

// Stop implements [peers.Peer].
func (c *cluster) Stop() {
	c.servers.Kill()
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

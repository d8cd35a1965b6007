// Package zookeeper runs an ensemble of three ZooKeeper servers and takes locks with the
// lock recipe of the Go client library go-zookeeper/zk.
//
// The servers are those of the Debian package libzookeeper-java, started with java directly. They
// sync every transaction to disk, which is their default.
//
// The nouns, in reading order: cluster, the running servers; target and worker, a client
// of them.
package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// warmUp is how long the Java virtual machine needs to compile the code that is used often.
	warmUp = 25 * time.Second
	// The manifest of the first archive names the archives that it needs.
	classPath = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
	mainClass = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
	// heap is the limit that the start script of the ZooKeeper project sets.
	heap = "-Xmx1000m"
)

// settings are those of the example that ZooKeeper ships, with three exceptions: the
// number of connections from one host is not limited, the HTTP server for administrators
// is off, since its port is fixed, and servers of an ensemble have addresses.
const settings = `tickTime=2000
initLimit=10
syncLimit=5
maxClientCnxns=0
admin.enableServer=false
`

// Kind returns the row of the table.
func Kind() peers.Kind {
	return peers.Kind{
		Name:  "zookeeper",
		Start: start,
		Attach: func(address string) (load.Target, error) {
			t := &target{}
			return t, json.Unmarshal([]byte(address), &t.endpoints)
		},
		ClientPerWorker: true,
		WarmUp:          warmUp,
		Workloads:       []string{"W1", "W2", "W4"},
	}
}

// cluster is three running servers.
type cluster struct {
	target
	dir     string
	servers process.Servers
}

var _ peers.Killer = (*cluster)(nil)

func start(ctx context.Context, dir string) (_ peers.Peer, err error) {
	c := &cluster{}
	defer func() {
		if err != nil {
			err = c.servers.Explain(err)
			err = fmt.Errorf("start ZooKeeper: %w", err)
			c.Stop()
		}
	}()
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("%w; run scripts/install-bench-peers", err)
	}
	for archive := range strings.SplitSeq(classPath, ":") {
		if _, err := os.Stat(archive); err != nil {
			return nil, fmt.Errorf("%w; run scripts/install-bench-peers", err)
		}
	}
	if c.dir, err = os.MkdirTemp(dir, "zookeeper-"); err != nil {
		return nil, err
	}
	if err := c.startServers(java); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return c, c.ready(ctx)
}

// startServers writes the configurations and starts the servers.
func (c *cluster) startServers(java string) error {
	addresses, err := process.FreeAddresses(3 * nodes)
	if err != nil {
		return err
	}
	c.endpoints = addresses[:nodes]
	ensemble := ""
	for i := range nodes {
		_, election, _ := net.SplitHostPort(addresses[2*nodes+i])
		ensemble += fmt.Sprintf("server.%d=%s:%s\n", i+1, addresses[nodes+i], election)
	}
	for i, endpoint := range c.endpoints {
		id := strconv.Itoa(i + 1)
		data := filepath.Join(c.dir, id)
		if err := os.Mkdir(data, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(data, "myid"), []byte(id), 0o600); err != nil {
			return err
		}
		host, port, _ := net.SplitHostPort(endpoint)
		file := filepath.Join(c.dir, id+".cfg")
		text := fmt.Sprintf("%sdataDir=%s\nclientPortAddress=%s\nclientPort=%s\n%s", settings, data, host, port, ensemble)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		s, err := process.Start(filepath.Join(c.dir, id+".log"), java, heap, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"-cp", classPath, mainClass, file)
		if err != nil {
			return err
		}
		c.servers = append(c.servers, s)
	}
	return nil
}

// ready waits until every server follows or leads, and then for a grant.
func (c *cluster) ready(ctx context.Context) error {
	for i, endpoint := range c.endpoints {
		for {
			mode, err := stateOf(endpoint, "Mode")
			if mode == "leader" || mode == "follower" {
				break
			}
			if ctx.Err() != nil || !c.servers[i].Running() {
				return errors.Join(fmt.Errorf("server %s of ZooKeeper neither leads nor follows", endpoint), err, ctx.Err())
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

// stateOf asks a server for its state, and returns one of the values.
func stateOf(endpoint, name string) (string, error) {
	conn, err := net.DialTimeout("tcp", endpoint, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("ZooKeeper at %s has no %s in its state %q", endpoint, name, text)
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
	version, _ := stateOf(c.endpoints[0], "Zookeeper version")
	version, _, _ = strings.Cut(version, ",")
	version, _, _ = strings.Cut(version, "-") // the commit follows
	java, _ := exec.Command("java", "-version").CombinedOutput()
	line, _, _ := strings.Cut(string(java), "\n")
	return fmt.Sprintf("%s on %s, %s", version, strings.ReplaceAll(line, `"`, ""), peers.Library("go-zookeeper", "github.com/go-zookeeper/zk"))
}

// KillLeader implements [peers.Killer].
func (c *cluster) KillLeader(context.Context) error {
	for i, endpoint := range c.endpoints {
		if mode, _ := stateOf(endpoint, "Mode"); mode == "leader" {
			c.servers[i].Kill()
			return nil
		}
	}
	return errors.New("no server of ZooKeeper leads")
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
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

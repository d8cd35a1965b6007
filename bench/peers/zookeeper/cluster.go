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
	nodes = 3
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
	process.Cluster
}

var _ peers.Killer = (*cluster)(nil)

func start(ctx context.Context, dir string) (peers.Peer, error) {
	c := &cluster{}
	return c, c.Launch(ctx, dir, "zookeeper", func(context.Context) error {
		java, err := exec.LookPath("java")
		if err != nil {
			return fmt.Errorf("%w; run scripts/install-bench-peers", err)
		}
		for archive := range strings.SplitSeq(classPath, ":") {
			if _, err := os.Stat(archive); err != nil {
				return fmt.Errorf("%w; run scripts/install-bench-peers", err)
			}
		}
		return c.startServers(java)
	}, c.ready)
}

// startServers writes the configurations and starts the servers.
func (c *cluster) startServers(java string) error {
	addresses, err := process.FreeAddresses(3 * nodes)
	if err != nil {
		return err
	}
	c.endpoints, c.Endpoints = addresses[:nodes], addresses[:nodes]
	ensemble := ""
	for i := range nodes {
		_, election, _ := net.SplitHostPort(addresses[2*nodes+i])
		ensemble += fmt.Sprintf("server.%d=%s:%s\n", i+1, addresses[nodes+i], election)
	}
	for i, endpoint := range c.endpoints {
		id := strconv.Itoa(i + 1)
		data := filepath.Join(c.Dir, id)
		if err := os.Mkdir(data, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(data, "myid"), []byte(id), 0o600); err != nil {
			return err
		}
		host, port, _ := net.SplitHostPort(endpoint)
		file := filepath.Join(c.Dir, id+".cfg")
		text := fmt.Sprintf("%sdataDir=%s\nclientPortAddress=%s\nclientPort=%s\n%s", settings, data, host, port, ensemble)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		if err := c.Add(id, java, heap, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"-cp", classPath, mainClass, file); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until every server follows or leads, and then for a grant.
func (c *cluster) ready(ctx context.Context) error {
	if err := c.Wait(ctx, func(i int) error {
		mode, err := stateOf(c.endpoints[i], "Mode")
		if err == nil && mode != "leader" && mode != "follower" {
			err = errors.New("it neither leads nor follows")
		}
		return err
	}); err != nil {
		return err
	}
	return peers.TryOnce(ctx, c.Open)
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
			c.Servers[i].Kill()
			return nil
		}
	}
	return errors.New("no server of ZooKeeper leads")
}

// Restore implements [peers.Killer].
func (c *cluster) Restore(ctx context.Context) error {
	if err := c.Restart(); err != nil {
		return err
	}
	return c.ready(ctx)
}

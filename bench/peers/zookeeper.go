package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/testserver"
)

const (
	// zooKeeperWarmUp is how long the Java virtual machine needs to compile the code that is used often.
	zooKeeperWarmUp = 25 * time.Second
	// The manifest of the first archive names the archives that it needs.
	classPath = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
	mainClass = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
	// heap is the limit that the start script of the ZooKeeper project sets.
	heap = "-Xmx1000m"
)

// zooKeeperSettings are those of the example that ZooKeeper ships, with three exceptions: the
// number of connections from one host is not limited, the HTTP server for administrators
// is off, since its port is fixed, and servers of an ensemble have addresses.
const zooKeeperSettings = `tickTime=2000
initLimit=10
syncLimit=5
maxClientCnxns=0
admin.enableServer=false
`

// zooKeeperKind returns ZooKeeper: three servers, and the lock recipe of the Go client library go-zookeeper/zk.
//
// The servers are those of the Debian package libzookeeper-java, started with java directly. They sync every
// transaction to disk, which is their default.
func zooKeeperKind() Kind {
	return Kind{
		Name:            "zookeeper",
		Start:           startZooKeeper,
		Attach:          attach(openZooKeeper),
		ClientPerWorker: true,
		WarmUp:          zooKeeperWarmUp,
		Workloads:       []string{"W1", "W2", "W4"},
	}
}

// zooKeeperCluster is three running servers.
type zooKeeperCluster struct{ Cluster }

var _ Killer = (*zooKeeperCluster)(nil)

func startZooKeeper(ctx context.Context, dir string) (Peer, error) {
	c := &zooKeeperCluster{}
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
	})
}

// startServers writes the configurations and starts the servers.
func (c *zooKeeperCluster) startServers(java string) error {
	addresses, err := testserver.FreeAddresses(3 * nodes)
	if err != nil {
		return err
	}
	c.Endpoints, c.open, c.ready = addresses[:nodes], openZooKeeper(addresses[:nodes]), c.awaitLeader
	ensemble := ""
	for i := range nodes {
		_, election, _ := net.SplitHostPort(addresses[2*nodes+i])
		ensemble += fmt.Sprintf("server.%d=%s:%s\n", i+1, addresses[nodes+i], election)
	}
	for i, endpoint := range c.Endpoints {
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
		text := fmt.Sprintf("%sdataDir=%s\nclientPortAddress=%s\nclientPort=%s\n%s", zooKeeperSettings, data, host, port,
			ensemble)
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

// awaitLeader waits until every server follows or leads, and then for a grant.
func (c *zooKeeperCluster) awaitLeader(ctx context.Context) error {
	if err := c.Wait(ctx, func(i int) error {
		mode, err := stateOf(c.Endpoints[i], "Mode")
		if err == nil && mode != "leader" && mode != "follower" {
			err = errors.New("it neither leads nor follows")
		}
		return err
	}); err != nil {
		return err
	}
	return tryOnce(ctx, c.open)
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

// Version implements [Peer].
func (c *zooKeeperCluster) Version() string {
	version, _ := stateOf(c.Endpoints[0], "Zookeeper version")
	version, _, _ = strings.Cut(version, ",")
	version, _, _ = strings.Cut(version, "-") // the commit follows
	java, _ := exec.Command("java", "-version").CombinedOutput()
	line, _, _ := strings.Cut(string(java), "\n")
	return fmt.Sprintf("%s on %s, %s", version, strings.ReplaceAll(line, `"`, ""),
		Library("go-zookeeper", "github.com/go-zookeeper/zk"))
}

// KillLeader implements [Killer].
func (c *zooKeeperCluster) KillLeader(context.Context) error {
	return c.killFirst(func(i int) bool {
		mode, _ := stateOf(c.Endpoints[i], "Mode")
		return mode == "leader"
	})
}

const (
	// sessionTimeout is a usual value: the servers allow 4 to 40 seconds.
	sessionTimeout = 10 * time.Second
	// retryInterval is the time between two attempts while no server answers.
	retryInterval = 10 * time.Millisecond
	zooKeeperRoot = "/locks/"
)

// openZooKeeper opens sessions of the servers.
func openZooKeeper(endpoints []string) load.Target {
	return func(ctx context.Context) (load.Client, error) {
		w := &zooKeeperWorker{endpoints: endpoints}
		return w, w.connect(ctx)
	}
}

// zooKeeperWorker takes locks with a session on its own connection.
type zooKeeperWorker struct {
	endpoints []string

	mu   sync.Mutex
	conn *zk.Conn
}

// connect opens a session and waits for it.
func (w *zooKeeperWorker) connect(ctx context.Context) error {
	conn, events, err := zk.Connect(w.endpoints, sessionTimeout, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				w.conn = conn
				return nil
			}
		case <-ctx.Done():
			conn.Close()
			return fmt.Errorf("open a session of ZooKeeper: %w", ctx.Err())
		}
	}
}

// Acquire implements [load.Client]. The recipe has no context: a wait ends with the grant,
// or with the session. So the end of ctx closes the session: the recipe can wait forever
// for its own place in the queue, if the answer to its creation was lost.
func (w *zooKeeperWorker) Acquire(ctx context.Context, name string) (load.Held, error) {
	w.mu.Lock()
	conn := w.conn
	w.mu.Unlock()
	defer context.AfterFunc(ctx, conn.Close)()
	recipe := zk.NewLock(conn, zooKeeperRoot+name, zk.WorldACL(zk.PermAll))
	if err := recipe.Lock(); err != nil {
		return load.Held{}, errors.Join(err, w.replace(ctx, conn))
	}
	// The recipe does not reveal the number of its node.
	return load.Held{Release: func(ctx context.Context) error { return unlock(ctx, recipe) }}, nil
}

// replace replaces a session in which an acquisition has failed: its place in the queue
// would block the lock. A session that is closed by the servers frees its locks at once,
// so replace waits for its connection first.
func (w *zooKeeperWorker) replace(ctx context.Context, failed *zk.Conn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != failed { // another caller has replaced it
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*sessionTimeout)
	defer cancel()
	for failed.State() != zk.StateHasSession && ctx.Err() == nil {
		time.Sleep(retryInterval)
	}
	failed.Close()
	return w.connect(ctx)
}

// Close implements [load.Client].
func (w *zooKeeperWorker) Close(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn.Close()
	return nil
}

// unlock repeats a release that a lost connection has interrupted: the session outlives the connection, and would keep
// the lock.
func unlock(ctx context.Context, held *zk.Lock) error {
	err := held.Unlock()
	if !errors.Is(err, zk.ErrConnectionClosed) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	for errors.Is(err, zk.ErrConnectionClosed) && ctx.Err() == nil {
		time.Sleep(retryInterval)
		err = held.Unlock()
	}
	if errors.Is(err, zk.ErrNoNode) { // the interrupted release took effect, or the session has ended
		return nil
	}
	return err
}

// quiet discards the log of the library, which reports every reconnection.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

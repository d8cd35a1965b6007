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

// zooKeeperService is three servers: those of the Debian package libzookeeper-java, started with java directly. They
// sync every transaction to disk, which is their default.
var zooKeeperService = service{
	name: "zookeeper",
	built: func(context.Context, string) (string, error) {
		for archive := range strings.SplitSeq(classPath, ":") {
			if _, err := os.Stat(archive); err != nil {
				return "", fmt.Errorf("%w; run scripts/install-bench-peers", err)
			}
		}
		return exec.LookPath("java")
	},
	args: func(c *Cluster, i int) ([]string, error) {
		host, port, _ := net.SplitHostPort(c.Endpoints[i])
		data, file := filepath.Join(c.dir, nodeName(i)), filepath.Join(c.dir, nodeName(i)+".cfg")
		text := fmt.Sprintf("%sdataDir=%s\nclientPortAddress=%s\nclientPort=%s\n", zooKeeperSettings, data, host, port)
		for j, address := range c.internal[0] {
			_, election, _ := net.SplitHostPort(c.internal[1][j])
			text += fmt.Sprintf("server.%d=%s:%s\n", j+1, address, election)
		}
		err := os.Mkdir(data, 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(i+1)), 0o600)
		}
		return []string{heap, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classPath, mainClass, file},
			errors.Join(err, os.WriteFile(file, []byte(text), 0o600))
	},
	ready: func(_ context.Context, endpoint string) error {
		mode, err := stateOf(endpoint, "Mode")
		if err == nil && mode != "leader" && mode != "follower" {
			err = errors.New("it neither leads nor follows")
		}
		return err
	},
	grants: func(ctx context.Context, endpoints []string) error { return tryOnce(ctx, openZooKeeper(endpoints)) },
	leads: func(_ context.Context, endpoint string) bool {
		mode, _ := stateOf(endpoint, "Mode")
		return mode == "leader"
	},
	version: func(c *Cluster) string {
		version, _ := stateOf(c.Endpoints[0], "Zookeeper version")
		version, _, _ = strings.Cut(version, ",")
		version, _, _ = strings.Cut(version, "-") // the commit follows
		java, _ := exec.Command("java", "-version").CombinedOutput()
		line, _, _ := strings.Cut(string(java), "\n")
		return fmt.Sprintf("%s on %s, %s", version, strings.ReplaceAll(line, `"`, ""),
			library("go-zookeeper", "github.com/go-zookeeper/zk"))
	},
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

package peers

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-cleanhttp"

	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/testserver"
)

// maxConnections is the number of connections that a server accepts from one host. The
// default is less than the number of workers.
const maxConnections = 4096

// consulService is three servers. They are built from the Go module in the folder consul/server, which is not part of
// the benchmark's module, since its dependencies are many and old; the first build on a machine takes minutes. The
// settings are the defaults, with these exceptions: timeouts of Raft for production, and a higher limit on the
// connections from one host, since each waiting request has one.
var consulService = service{
	name:  "consul",
	built: build(benchModule, "peers/consul/server", "github.com/hashicorp/consul"),
	version: func(c *Cluster) string {
		return firstLine("Consul ", "version")(c) + ", " + library("api", "github.com/hashicorp/consul/api")
	},
	args: func(c *Cluster, i int) ([]string, error) {
		testserver.ReleaseUDP(c.internal[1][i])
		text, err := json.Marshal(map[string]any{
			"server": true, "bootstrap_expect": nodes, "node_name": nodeName(i), "data_dir": filepath.Join(c.dir, nodeName(i)),
			"bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "retry_join": c.internal[1], "retry_interval": "1s",
			"ports": map[string]int{"http": port(c.Endpoints[i]), "server": port(c.internal[0][i]),
				"serf_lan": port(c.internal[1][i]),
				"serf_wan": -1, "dns": -1, "grpc": -1, "grpc_tls": -1},
			"performance":          map[string]int{"raft_multiplier": 1},
			"limits":               map[string]int{"http_max_conns_per_client": maxConnections},
			"connect":              map[string]bool{"enabled": false},
			"disable_update_check": true, "log_level": "WARN",
		})
		if err != nil {
			return nil, err
		}
		file := filepath.Join(c.dir, nodeName(i)+".json")
		return []string{"agent", "-config-file=" + file}, os.WriteFile(file, text, 0o600)
	},
	ready:  func(ctx context.Context, endpoint string) error { return tryOnce(ctx, openConsul([]string{endpoint})) },
	grants: func(ctx context.Context, endpoints []string) error { return tryOnce(ctx, openConsul(endpoints)) },
}

func port(address string) int {
	_, text, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(text)
	return n
}

const (
	// sessionTTL is the default of the library's locks.
	sessionTTL = api.DefaultLockSessionTTL
	// idleConnections is enough for the workers of a process. The default, one more than the
	// number of processors, would open a connection for nearly every request.
	idleConnections = 1024
)

// openConsul opens sessions, which are shared out among the servers. They share the connections of the process.
func openConsul(endpoints []string) load.Target {
	transport := cleanhttp.DefaultPooledTransport()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, idleConnections
	var opened atomic.Uint64
	return func(context.Context) (load.Client, error) {
		address := endpoints[opened.Add(1)%uint64(len(endpoints))]
		client, err := api.NewClient(&api.Config{Address: address, Transport: transport})
		if err != nil {
			return nil, err
		}
		id, _, err := client.Session().Create(&api.SessionEntry{Name: "bench", TTL: sessionTTL}, nil)
		if err != nil {
			return nil, err
		}
		w := &consulWorker{client: client, session: id, closed: make(chan struct{}), ended: make(chan error, 1)}
		go func() { w.ended <- client.Session().RenewPeriodic(sessionTTL, id, nil, w.closed) }()
		return w, nil
	}
}

// consulWorker takes locks with a session.
type consulWorker struct {
	client  *api.Client
	session string
	closed  chan struct{}
	ended   chan error
}

// Acquire implements [load.Client] with the operations that the library's api.Lock consists
// of. That type also reads before it tries, and watches each lock while it is held. It needs
// more CPU time, and gives one of many waiters nearly all grants.
func (w *consulWorker) Acquire(ctx context.Context, name string) (load.Held, error) {
	entry := &api.KVPair{Key: name, Session: w.session, Flags: api.LockFlagValue}
	for {
		ok, _, err := w.client.KV().Acquire(entry, (&api.WriteOptions{}).WithContext(ctx))
		if err != nil {
			return load.Held{}, err
		}
		if ok {
			// The answer to a grant does not contain the index of the lock.
			return load.Held{Release: func(ctx context.Context) error {
				ok, _, err := w.client.KV().Release(entry, (&api.WriteOptions{}).WithContext(ctx))
				if err == nil && !ok {
					return errors.New("release a lock of Consul: the session does not hold it")
				}
				return err
			}}, nil
		}
		if err := w.waitUntilFree(ctx, name); err != nil {
			return load.Held{}, err
		}
	}
}

// waitUntilFree waits until no session holds the lock.
func (w *consulWorker) waitUntilFree(ctx context.Context, name string) error {
	options := (&api.QueryOptions{WaitTime: api.DefaultLockWaitTime}).WithContext(ctx)
	for {
		entry, meta, err := w.client.KV().Get(name, options)
		if err != nil || entry == nil || entry.Session == "" {
			return err
		}
		options.WaitIndex = meta.LastIndex
	}
}

// Close implements [load.Client]. The end of the renewals destroys the session.
func (w *consulWorker) Close(context.Context) error {
	close(w.closed)
	return <-w.ended
}

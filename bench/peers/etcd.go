package peers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/internal/testserver"
)

const dialTimeout = time.Minute

// etcdProgram is the server, in the version of the benchmark's go.mod.
var etcdProgram = &Program{Module: benchModule, Package: "go.etcd.io/etcd/server/v3"}

// etcdKind returns etcd: three servers, one client, and a session for each worker.
func etcdKind() Kind {
	return Kind{
		Name:            "etcd",
		Start:           startEtcd,
		ClientPerWorker: true,
		Workloads:       []string{"W1", "W2", "W3", "W4", "W6"},
		Attach:          attach(openEtcd),
	}
}

// etcdCluster is three running servers.
type etcdCluster struct{ Cluster }

var _ Killer = (*etcdCluster)(nil)

// startEtcd builds the server and starts three of them, with their default settings.
func startEtcd(ctx context.Context, dir string) (Peer, error) {
	c := &etcdCluster{}
	return c, c.Launch(ctx, dir, "etcd", func(ctx context.Context) (err error) {
		if c.program, err = etcdProgram.Path(ctx, dir); err != nil {
			return err
		}
		return c.startServers()
	})
}

func (c *etcdCluster) startServers() error {
	addresses, err := testserver.FreeAddresses(2 * nodes)
	if err != nil {
		return err
	}
	c.Endpoints, c.open, c.ready = addresses[:nodes], openEtcd(addresses[:nodes]), c.awaitLeader
	var initial []string
	for i := range nodes {
		initial = append(initial, fmt.Sprintf("n%d=http://%s", i, addresses[nodes+i]))
	}
	for i := range nodes {
		name, client, peer := fmt.Sprintf("n%d", i), "http://"+addresses[i], "http://"+addresses[nodes+i]
		if err := c.Add(name, c.program, "--name="+name, "--data-dir="+filepath.Join(c.Dir, name),
			"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer,
			"--initial-advertise-peer-urls="+peer, "--initial-cluster="+strings.Join(initial, ","),
			"--log-level=warn"); err != nil {
			return err
		}
	}
	return nil
}

// awaitLeader waits until every server knows the leader, and then for a grant.
func (c *etcdCluster) awaitLeader(ctx context.Context) error {
	client, err := dialEtcd(c.Endpoints)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := c.Wait(ctx, func(i int) error {
		status, err := client.Status(ctx, c.Endpoints[i])
		if err == nil && status.Leader == 0 {
			err = errors.New("it has no leader")
		}
		return err
	}); err != nil {
		return err
	}
	return tryOnce(ctx, c.open)
}

// Version implements [Peer].
func (c *etcdCluster) Version() string { return firstLine("etcd Version: ", c.program, "--version") }

// KillLeader implements [Killer].
func (c *etcdCluster) KillLeader(ctx context.Context) error {
	client, err := dialEtcd(c.Endpoints)
	if err != nil {
		return err
	}
	defer client.Close()
	return c.killFirst(func(i int) bool {
		status, err := client.Status(ctx, c.Endpoints[i])
		return err == nil && status.Leader == status.Header.MemberId
	})
}

func dialEtcd(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: dialTimeout})
}

// openEtcd returns a target with one session for each worker. Like the workers of a real process, they share one etcd
// client.
func openEtcd(endpoints []string) load.Target {
	client := &shared[*clientv3.Client]{} // used by the sessions
	leave := func() { client.leave(func(c *clientv3.Client) { _ = c.Close() }) }
	return func(context.Context) (load.Client, error) {
		c, err := client.use(func() (*clientv3.Client, error) { return dialEtcd(endpoints) })
		if err != nil {
			return nil, err
		}
		session, err := concurrency.NewSession(c)
		if err != nil {
			leave()
			return nil, err
		}
		return &etcdWorker{session, leave}, nil
	}
}

// etcdWorker takes locks with a session.
type etcdWorker struct {
	session *concurrency.Session
	leave   func() // the client
}

// Acquire implements [load.Client].
func (w *etcdWorker) Acquire(ctx context.Context, name string) (load.Held, error) {
	m := concurrency.NewMutex(w.session, name)
	if err := m.Lock(ctx); err != nil {
		return load.Held{}, err
	}
	return load.Held{Token: uint64(m.Header().Revision), Release: m.Unlock}, nil // the revision grows with each holder
}

// Close implements [load.Client].
func (w *etcdWorker) Close(context.Context) error {
	defer w.leave()
	return w.session.Close()
}

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
		Attach:          attach(func(endpoints []string) load.Target { return &etcdTarget{endpoints: endpoints} }),
	}
}

// etcdCluster is three running servers.
type etcdCluster struct {
	etcdTarget
	Cluster
	program string
}

var _ Killer = (*etcdCluster)(nil)

// startEtcd builds the server and starts three of them, with their default settings.
func startEtcd(ctx context.Context, dir string) (Peer, error) {
	c := &etcdCluster{}
	return c, c.Launch(ctx, dir, "etcd", func(ctx context.Context) (err error) {
		if c.program, err = etcdProgram.Path(ctx, dir); err != nil {
			return err
		}
		return c.startServers()
	}, c.ready)
}

func (c *etcdCluster) startServers() error {
	addresses, err := FreeAddresses(2 * nodes)
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
			"--initial-advertise-peer-urls="+peer, "--initial-cluster="+strings.Join(initial, ","),
			"--log-level=warn"); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until every server knows the leader, and then for a grant.
func (c *etcdCluster) ready(ctx context.Context) error {
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
	return tryOnce(ctx, c.Open)
}

// Version implements [Peer].
func (c *etcdCluster) Version() string { return firstLine("etcd Version: ", c.program, "--version") }

// KillLeader implements [Killer].
func (c *etcdCluster) KillLeader(ctx context.Context) error {
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

// Restore implements [Killer].
func (c *etcdCluster) Restore(ctx context.Context) error {
	if err := c.Restart(); err != nil {
		return err
	}
	return c.ready(ctx)
}

// etcdTarget is the cluster as a process uses it: its workers share one client, and each has
// a session.
type etcdTarget struct {
	endpoints []string
	client    shared[*clientv3.Client] // used by the sessions
}

// Name implements [load.Target].
func (t *etcdTarget) Name() string { return "etcd" }

func (t *etcdTarget) dial() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: t.endpoints, Logger: zap.NewNop(), DialTimeout: dialTimeout})
}

// Open implements [load.Target].
func (t *etcdTarget) Open(context.Context) (load.Client, error) {
	client, err := t.client.use(t.dial)
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client)
	if err != nil {
		t.leave()
		return nil, err
	}
	return &etcdWorker{t, session}, nil
}

func (t *etcdTarget) leave() { t.client.leave(func(c *clientv3.Client) { _ = c.Close() }) }

// etcdWorker takes locks with a session.
type etcdWorker struct {
	target  *etcdTarget
	session *concurrency.Session
}

// Acquire implements [load.Client].
func (w *etcdWorker) Acquire(ctx context.Context, name string) (load.Held, error) {
	m := concurrency.NewMutex(w.session, name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return lock{uint64(m.Header().Revision), m.Unlock}, nil // the revision grows with each holder
}

// Close implements [load.Client].
func (w *etcdWorker) Close(context.Context) error {
	defer w.target.leave()
	return w.session.Close()
}

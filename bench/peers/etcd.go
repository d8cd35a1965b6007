package peers

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/leased-project/leased/internal/load"
)

const dialTimeout = time.Minute

// etcdService is three servers in the version of the benchmark's go.mod, with their default settings.
var etcdService = service{
	name:    "etcd",
	built:   build(benchModule, "", "go.etcd.io/etcd/server/v3"),
	version: firstLine("etcd Version: ", "--version"),
	args: func(c *Cluster, i int) ([]string, error) {
		var initial []string
		for j, peer := range c.internal[0] {
			initial = append(initial, nodeName(j)+"=http://"+peer)
		}
		client, peer := "http://"+c.Endpoints[i], "http://"+c.internal[0][i]
		return []string{"--name=" + nodeName(i), "--data-dir=" + filepath.Join(c.dir, nodeName(i)),
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + strings.Join(initial, ","),
			"--log-level=warn"}, nil
	},
	ready: func(ctx context.Context, endpoint string) error {
		status, err := etcdStatus(ctx, endpoint)
		if err == nil && status.Leader == 0 {
			err = errors.New("it has no leader")
		}
		return err
	},
	grants: func(ctx context.Context, endpoints []string) error { return tryOnce(ctx, openEtcd(endpoints)) },
	leads: func(ctx context.Context, endpoint string) bool {
		status, err := etcdStatus(ctx, endpoint)
		return err == nil && status.Leader == status.Header.MemberId
	},
}

func etcdStatus(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	client, err := dialEtcd([]string{endpoint})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Status(ctx, endpoint)
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

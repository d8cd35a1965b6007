package peers

import (
	"context"
	"encoding/base64"
	"sync/atomic"

	"github.com/leased-project/leased/internal/load"
)

// etcdJSON is the name of etcd through its JSON gateway.
const etcdJSON = "etcd-json"

// etcdJSONKind returns etcd as a program without a client library uses it: each client has a connection to one of
// the servers, and a lease.
func etcdJSONKind() Kind {
	k := etcdKind()
	start := k.Start
	k.Name, k.Workloads = etcdJSON, []string{"W7"}
	k.Start = func(ctx context.Context, dir string) (Peer, error) {
		peer, err := start(ctx, dir)
		if err != nil {
			return peer, err
		}
		c := peer.(*etcdCluster)
		return &etcdGateway{c, etcdJSONTarget{endpoints: c.endpoints}}, nil
	}
	k.Attach = attach(func(endpoints []string) load.Target { return &etcdJSONTarget{endpoints: endpoints} })
	return k
}

// etcdGateway is etcd with clients of its gateway.
type etcdGateway struct {
	*etcdCluster
	gateway etcdJSONTarget
}

// Name implements [load.Target].
func (g *etcdGateway) Name() string { return etcdJSON }

// Open implements [load.Target].
func (g *etcdGateway) Open(ctx context.Context) (load.Client, error) { return g.gateway.Open(ctx) }

// etcdJSONTarget opens clients of the gateway.
type etcdJSONTarget struct {
	endpoints []string
	opened    atomic.Int64
}

// Name implements [load.Target].
func (t *etcdJSONTarget) Name() string { return etcdJSON }

// Open implements [load.Target].
func (t *etcdJSONTarget) Open(ctx context.Context) (load.Client, error) {
	c := &etcdJSONClient{jsonClient: newJSONClient(t.endpoints, t.opened.Add(1), "/v3/")}
	var granted struct {
		ID string `json:"ID"`
	}
	if err := c.post(ctx, "lease/grant", map[string]any{"TTL": int(jsonTTL.Seconds())}, &granted); err != nil {
		return nil, err
	}
	c.lease = granted.ID
	return c, nil
}

type etcdJSONClient struct {
	*jsonClient
	lease string
}

// Acquire implements [load.Client].
func (c *etcdJSONClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	var held struct {
		Key    string `json:"key"`
		Header struct {
			Revision uint64 `json:"revision,string"`
		} `json:"header"`
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(name))
	if err := c.post(ctx, "lock/lock", map[string]any{"name": encoded, "lease": c.lease}, &held); err != nil {
		return nil, err
	}
	return lock{held.Header.Revision, func(ctx context.Context) error {
		return c.post(ctx, "lock/unlock", map[string]any{"key": held.Key}, nil)
	}}, nil
}

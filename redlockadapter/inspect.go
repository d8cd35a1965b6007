package redlockadapter

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// watchEvery is the polling interval of Watch. Redis does not announce a lock that
// expires.
const watchEvery = 50 * time.Millisecond

// Inspect returns the holder and the waiters of a lock: all waiters of this process, and
// the first one of each other process.
func (b *Backend) Inspect(ctx context.Context, resource fencing.Resource) (engine.Status, error) {
	found, err := b.records(ctx, resource)
	if err != nil {
		return engine.Status{}, err
	}
	status := engine.Status{Resource: resource, Mode: engine.Efficiency, Waiters: b.queues.waiting(resource)}
	if h, left, ok := b.holder(resource, found); ok {
		status.Holders = []engine.Party{{Holder: h.Holder, User: h.User, Session: h.Session, Nonce: h.Nonce, Token: h.Token,
			Metadata: h.Metadata, TTL: left,
			Since: sinceOf(h.Name)}}
	}
	seen := map[string]bool{b.process: true}
	for _, r := range found {
		for _, w := range r.Waiters {
			process, holder, _ := strings.Cut(w.Name, " ")
			if !seen[process] {
				seen[process] = true
				status.Waiters = append(status.Waiters, engine.Party{Holder: holder, Since: plausible(w.Since)})
			}
		}
	}
	return status, nil
}

// Watch calls changed with the current status, and again after each change, until ctx ends or
// too few nodes answer.
func (b *Backend) Watch(ctx context.Context, resource fencing.Resource, changed func(engine.Status)) error {
	return engine.Poll(ctx, watchEvery, func() (engine.Status, error) { return b.Inspect(ctx, resource) }, changed)
}

// List returns the locks in use whose names begin with prefix and are greater than after,
// in order, at most limit. Fewer than limit means that there are no more. It reads the
// nodes.
func (b *Backend) List(ctx context.Context, prefix string, after fencing.Resource, limit int) ([]engine.Status, error) {
	names, err := b.names(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	var list []engine.Status
	for len(names) > 0 && len(list) < limit {
		n := min(limit-len(list), len(names))
		page, err := b.inspectAll(ctx, names[:n])
		if err != nil {
			return nil, err
		}
		names = names[n:]
		// A node may keep the record of a lock that is not held by a quorum.
		list = append(list, slices.DeleteFunc(page, func(s engine.Status) bool {
			return len(s.Holders)+len(s.Waiters) == 0
		})...)
	}
	return list, nil
}

// inspectAll returns the status of each of the locks, or one of the errors if there are any.
func (b *Backend) inspectAll(ctx context.Context, names []fencing.Resource) ([]engine.Status, error) {
	list := make([]engine.Status, len(names))
	errs := engine.Each(len(names), 64, func(i int) (err error) {
		list[i], err = b.Inspect(ctx, names[i])
		return err
	})
	return list, cmp.Or(errs...)
}

// names returns the locks that are in use on any node. A quorum of the nodes must answer,
// since a lease is on a quorum.
func (b *Backend) names(ctx context.Context, prefix string, after fencing.Resource) ([]fencing.Resource, error) {
	under, err := b.authorize(nil)
	if err != nil {
		return nil, err
	}
	found, errs := make([][]fencing.Resource, len(b.nodes)), make([]error, len(b.nodes))
	b.each(func(i int, n *redisconn.Conn) {
		var node scripts.Node = n
		if under.servers != nil {
			node = n.At(under.servers[i])
		}
		found[i], errs[i] = scripts.List(ctx, node, prefix, under.version)
	})
	if err := b.checkRead(errs); err != nil {
		return nil, err
	}
	all := map[fencing.Resource]bool{}
	for i := range b.nodes {
		for _, name := range found[i] {
			if name > after {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

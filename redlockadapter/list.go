package redlockadapter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// scanStep is how many keys a node looks at in one step of a scan.
const scanStep = "500"

// List returns the locks in use whose names begin with prefix and come after one
// of them, in order, at most limit. It reads the nodes.
func (b *Backend) List(ctx context.Context, prefix string, after fencing.Resource, limit int) ([]engine.Status, error) {
	names, err := b.names(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	names = names[:min(limit, len(names))]
	list, errs := make([]engine.Status, len(names)), make([]error, len(names))
	var wg sync.WaitGroup
	room := make(chan struct{}, 64)
	for i, name := range names {
		room <- struct{}{}
		wg.Go(func() {
			list[i], errs[i] = b.Inspect(ctx, name)
			<-room
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(list, func(s engine.Status) bool { return len(s.Holders)+len(s.Waiters) == 0 }), nil
}

// names returns the locks in use that any node knows of. A majority must answer: a
// lease is on a majority.
func (b *Backend) names(ctx context.Context, prefix string, after fencing.Resource) ([]fencing.Resource, error) {
	found, errs := make([][]fencing.Resource, len(b.nodes)), make([]error, len(b.nodes))
	b.each(func(i int, n *node) { found[i], errs[i] = n.scan(ctx, prefix) })
	answered := 0
	all := map[fencing.Resource]bool{}
	for i := range b.nodes {
		if errs[i] == nil {
			answered++
		}
		for _, name := range found[i] {
			if name > after {
				all[name] = true
			}
		}
	}
	if answered < b.quorum {
		return nil, b.explain(errs)
	}
	names := make([]fencing.Resource, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// scan returns the locks in use on one node.
func (n *node) scan(ctx context.Context, prefix string) ([]fencing.Resource, error) {
	var names []fencing.Resource
	for cursor := "0"; ; {
		n.mu.Lock()
		k := n.link
		n.mu.Unlock()
		if k == nil {
			if _, err := n.call(ctx, reportScript, []string{nodeKey, lifeKey}, n.namespace); err != nil { // connects
				return nil, err
			}
			continue
		}
		got, err := n.call(ctx, listScript, []string{nodeKey}, cursor, escapePattern(k.prefix+lockPrefix+prefix)+"*", scanStep)
		if err != nil {
			return nil, err
		}
		if len(got.words) == 1 && got.word(0) == "empty" {
			return nil, fmt.Errorf("%s: %w", n.addr, errEmpty)
		}
		for _, name := range got.words[1:] {
			names = append(names, fencing.Resource(name))
		}
		if cursor = got.word(0); cursor == "0" {
			return names, nil
		}
	}
}

// escapePattern makes a text match itself in a pattern of Redis.
func escapePattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

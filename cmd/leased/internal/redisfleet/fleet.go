package redisfleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Kind says whether to start Redis nodes.
type Kind string

const (
	// Auto starts Redis nodes if redis-server is installed.
	Auto Kind = "auto"
	// Servers starts Redis nodes, and fails without redis-server.
	Servers Kind = "server"
	// None starts no Redis nodes.
	None Kind = "none"
)

// ParseKind parses the name of a Kind.
func ParseKind(s string) (Kind, error) {
	switch k := Kind(s); k {
	case Auto, Servers, None:
		return k, nil
	}
	return "", fmt.Errorf("redis (%s) must be auto, server or none", s)
}

// Fleet is a set of running Redis nodes. Stop ends them.
type Fleet struct {
	// Missing says why the fleet is empty, if Auto found no usable redis-server.
	Missing error
	// Addrs are the loopback addresses of the nodes.
	Addrs []string

	nodes []*process
}

// Start starts n empty Redis nodes at free addresses. Their logs are in dir.
func Start(ctx context.Context, kind Kind, dir string, n int) (*Fleet, error) {
	if kind == None {
		return &Fleet{}, nil
	}
	program, err := findServer(ctx)
	switch {
	case err != nil && kind == Auto:
		return &Fleet{Missing: err}, nil
	case err != nil:
		return nil, err
	}
	f := &Fleet{}
	for i := range n {
		if err := f.add(ctx, program, filepath.Join(dir, fmt.Sprintf("redis-%d", i+1))); err != nil {
			f.Stop()
			return nil, err
		}
	}
	return f, nil
}

// Stop stops all nodes.
func (f *Fleet) Stop() {
	for _, node := range f.nodes {
		node.stop()
	}
	f.nodes = nil
}

func (f *Fleet) add(ctx context.Context, program, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create a folder for Redis: %w", err)
	}
	node, err := launch(ctx, program, dir)
	if err != nil {
		return err
	}
	f.Addrs, f.nodes = append(f.Addrs, node.addr), append(f.nodes, node)
	return nil
}

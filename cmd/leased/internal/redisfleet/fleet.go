package redisfleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Kind is what a fleet is made of.
type Kind string

const (
	// Auto is Servers where redis-server is installed, else Embedded.
	Auto Kind = "auto"
	// Servers are redis-server processes.
	Servers Kind = "server"
	// Embedded are imitations in this process, for trying out only.
	Embedded Kind = "embedded"
	// None is no fleet at all.
	None Kind = "none"
)

// ParseKind reads the word for a Kind.
func ParseKind(s string) (Kind, error) {
	switch k := Kind(s); k {
	case Auto, Servers, Embedded, None:
		return k, nil
	}
	return "", fmt.Errorf("redis (%s) must be auto, server, embedded or none", s)
}

// Fleet is a set of running Redis masters. Stop it when done.
type Fleet struct {
	// Kind is Servers, Embedded or None.
	Kind Kind
	// Why says why the kind is not Servers.
	Why string
	// Addrs are where they listen, on the loopback interface.
	Addrs []string

	stop []func()
}

// Start starts n empty masters at new addresses, with their logs below dir.
func Start(ctx context.Context, kind Kind, dir string, n int) (*Fleet, error) {
	f := &Fleet{Kind: kind}
	program := ""
	if kind == Auto || kind == Servers {
		var err error
		if program, err = findServer(ctx); err == nil {
			f.Kind = Servers
		} else if kind == Servers {
			return nil, fmt.Errorf("%w; install it (Debian: apt-get install redis-server), or use the embedded ones", err)
		} else {
			f.Kind, f.Why = Embedded, err.Error()
		}
	}
	for i := range n {
		var err error
		switch f.Kind {
		case Servers:
			err = f.startServer(ctx, program, filepath.Join(dir, fmt.Sprintf("redis-%d", i+1)))
		case Embedded:
			err = f.startEmbedded()
		}
		if err != nil {
			f.Stop()
			return nil, err
		}
	}
	return f, nil
}

// Stop stops them all.
func (f *Fleet) Stop() {
	for _, stop := range f.stop {
		stop()
	}
	f.stop = nil
}

func (f *Fleet) startServer(ctx context.Context, program, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a folder for Redis: %w", err)
	}
	s, err := launch(ctx, program, dir)
	if err != nil {
		return err
	}
	f.Addrs, f.stop = append(f.Addrs, s.addr), append(f.stop, s.end)
	return nil
}

//go:build linux

package torture

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/leased-project/leased/internal/testserver"
)

// redisNode is one Redis server.
type redisNode struct {
	number int
	server *testserver.RedisServer
	addr   string // for members
	clock  string // the file with its clock offset, or empty
	saved  bool   // there is an older copy of its folder
}

// fakeClock returns the libraries to preload for a clock offset, or why there are none. The
// C library is one of them, so that the server uses its allocator: libfaketime and jemalloc
// call each other recursively.
func fakeClock() (preload, why string) {
	library, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	libc, _ := filepath.Glob("/lib/*/libc.so.6")
	if len(library) == 0 || len(libc) == 0 {
		return "", "no clock offsets: libfaketime is missing (Debian: apt-get install faketime)"
	}
	return library[0] + ":" + libc[0], ""
}

func newRedisNode(w *world, number int, preload string) (*redisNode, error) {
	m := &redisNode{number: number}
	options := []testserver.RedisOption{testserver.RedisAppendOnly()}
	if preload != "" {
		m.clock = filepath.Join(w.config.Dir, fmt.Sprintf("redis-%d-clock", number))
		if err := m.setClockOffset(0); err != nil {
			return nil, err
		}
		options = append(options, testserver.RedisEnv("LD_PRELOAD", preload), testserver.RedisEnv("FAKETIME_TIMESTAMP_FILE",
			m.clock),
			testserver.RedisEnv("FAKETIME_CACHE_DURATION", "1"), testserver.RedisEnv("FAKETIME_DONT_FAKE_MONOTONIC", "1"))
	}
	host := w.network.address(here)
	if w.network.namespaces {
		options = append(options, testserver.RedisConfig("bind", "127.0.0.1", host), testserver.RedisConfig("protected-mode",
			"no"))
	}
	server, err := testserver.StartRedis(options...)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		server.Close()
		return nil, err
	}
	m.server, m.addr = server, net.JoinHostPort(host, port)
	return m, nil
}

// who returns its name in histories.
func (m *redisNode) who() string { return fmt.Sprintf("redis %d", m.number+1) }

// setClockOffset sets the offset of its clock.
func (m *redisNode) setClockOffset(by time.Duration) error {
	if m.clock == "" {
		return nil
	}
	if err := os.WriteFile(m.clock+".new", []byte(fmt.Sprintf("%+d\n", int(by.Seconds()))), 0o644); err != nil {
		return err
	}
	return os.Rename(m.clock+".new", m.clock)
}

// revive resumes it, and starts it if it does not run. It waits, until ctx ends, if another
// process uses its port.
func (m *redisNode) revive(ctx context.Context) error {
	m.server.Resume()
	if m.server.Pid() != 0 {
		return nil
	}
	var err error
	until(ctx, startLimit, func() bool { err = m.server.Start(); return err == nil })
	return err
}

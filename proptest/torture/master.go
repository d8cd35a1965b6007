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

// master is one Redis.
type master struct {
	number int
	server *testserver.RedisServer
	addr   string // for members
	clock  string // the file that moves its clock, or empty
	saved  bool   // there is a copy of an older folder
}

// fakeClock is what to preload to move a server's clock, or why that cannot be.
// The C library comes with it, so that the server takes its allocator:
// libfaketime and jemalloc call each other in circles.
func fakeClock() (preload, why string) {
	library, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	libc, _ := filepath.Glob("/lib/*/libc.so.6")
	if len(library) == 0 || len(libc) == 0 {
		return "", "no moved clocks: libfaketime is missing (Debian: apt-get install faketime)"
	}
	return library[0] + ":" + libc[0], ""
}

func newMaster(w *world, number int, preload string) (*master, error) {
	m := &master{number: number}
	options := []testserver.RedisOption{testserver.RedisAppendOnly()}
	if preload != "" {
		m.clock = filepath.Join(w.config.Dir, fmt.Sprintf("redis-%d-clock", number))
		if err := m.moveClock(0); err != nil {
			return nil, err
		}
		options = append(options, testserver.RedisEnv("LD_PRELOAD", preload), testserver.RedisEnv("FAKETIME_TIMESTAMP_FILE", m.clock),
			testserver.RedisEnv("FAKETIME_CACHE_DURATION", "1"), testserver.RedisEnv("FAKETIME_DONT_FAKE_MONOTONIC", "1"))
	}
	host := w.network.address(here)
	if w.network.namespaces {
		options = append(options, testserver.RedisConfig("bind", "127.0.0.1", host), testserver.RedisConfig("protected-mode", "no"))
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

// who is its name in histories.
func (m *master) who() string { return fmt.Sprintf("redis %d", m.number+1) }

// moveClock sets its clock off by some time.
func (m *master) moveClock(by time.Duration) error {
	if m.clock == "" {
		return nil
	}
	if err := os.WriteFile(m.clock+".new", []byte(fmt.Sprintf("%+d\n", int(by.Seconds()))), 0o644); err != nil {
		return err
	}
	return os.Rename(m.clock+".new", m.clock)
}

// revive lets it go on, and starts it if it does not run. Another process may
// have its port for a moment; once ctx has ended nobody waits for that.
func (m *master) revive(ctx context.Context) error {
	m.server.Resume()
	if m.server.Pid() != 0 {
		return nil
	}
	var err error
	until(ctx, startLimit, func() bool { err = m.server.Start(); return err == nil })
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// minRedis is the oldest major version of Redis that redlockadapter admits.
	minRedis = 7
	// redisStopTimeout is the time a Redis node has to exit after SIGTERM.
	redisStopTimeout = 10 * time.Second
	// redisProbe is the time between two questions whether a Redis node accepts commands.
	redisProbe = 20 * time.Millisecond
	// redisStarts is how often a node may start: another process may take its address before it listens there.
	redisStarts = 4
	// redisLog is the log of a Redis node, in its folder.
	redisLog = "redis.log"
)

// devRedis is a set of redis-server processes, so that `leased dev` can offer efficiency mode on one
// machine. They are not independent: they share the machine, and production needs servers that fail one by
// one. They keep no data when they end: the service treats a restart of Redis as data loss and gives new
// nodes larger tokens.
type devRedis struct {
	missing error    // why there are none, if the kind auto found no usable redis-server
	addrs   []string // the loopback addresses of the nodes

	running context.Context    // of the processes: ctx ends only the wait for their start
	cancel  context.CancelFunc // sends SIGTERM, and SIGKILL to those that do not exit in time
	work    sync.WaitGroup
}

// startRedis starts n empty Redis nodes at free addresses. Their logs are in dir. The kind says whether to
// start any: server, auto (if redis-server is installed) or none. The caller calls stop, also after the end of ctx.
func startRedis(ctx context.Context, kind, dir string, n int) (*devRedis, error) {
	if kind == "none" {
		return &devRedis{}, nil
	}
	program, err := findRedis(ctx)
	switch {
	case err != nil && kind == "auto":
		return &devRedis{missing: err}, nil
	case err != nil:
		return nil, err
	}
	r := &devRedis{}
	r.running, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for i := range n {
		if err := r.start(ctx, program, filepath.Join(dir, fmt.Sprintf("redis-%d", i+1))); err != nil {
			r.stop()
			return nil, fmt.Errorf("start Redis: %w", err)
		}
	}
	return r, nil
}

// stop stops all nodes.
func (r *devRedis) stop() {
	if r.cancel != nil {
		r.cancel()
		r.work.Wait()
	}
}

// start starts an empty node at a free address. If that fails, it tries another address.
func (r *devRedis) start(ctx context.Context, program, dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("no redis-server has answered within %v; see %s",
		startTimeout, filepath.Join(dir, redisLog)))
	defer cancel()
	for range redisStarts {
		var addr string
		if addr, err = freeAddr(); err != nil {
			return err
		}
		if err = r.startAt(ctx, addr, program, dir); err == nil {
			r.addrs = append(r.addrs, addr)
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
	}
	return err
}

// startAt starts an empty node at an address and waits until it accepts commands.
func (r *devRedis) startAt(ctx context.Context, addr, program, dir string) error {
	_, port, _ := net.SplitHostPort(addr)
	log := filepath.Join(dir, redisLog)
	cmd := exec.CommandContext(r.running, program, "--port", port, "--bind", "127.0.0.1", "--dir", dir,
		"--daemonize", "no", "--save", "", "--appendonly", "no", "--databases", "1", "--logfile", log)
	cmd.SysProcAttr = ownGroup() // Ctrl-C does not reach the nodes: they are stopped last
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = redisStopTimeout
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	r.work.Go(func() { _ = cmd.Wait(); close(exited) })
	for ping(ctx, addr, cmd.Process.Pid) != nil {
		select {
		case <-time.After(redisProbe):
		case <-exited:
			return fmt.Errorf("the process has exited; see %s", log)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// ping fails until the node with this process id accepts commands. It also fails if another server has taken the
// address: then the node exits.
func ping(ctx context.Context, addr string, pid int) error {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second,
		ReadTimeout: time.Second})
	defer client.Close()
	info, err := client.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	if got := info["Server"]["process_id"]; got != strconv.Itoa(pid) {
		return fmt.Errorf("the server at %s has the process id %s, not %d", addr, got, pid)
	}
	return nil
}

// freeAddr returns a loopback address that no process listens on right now.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

var redisVersion = regexp.MustCompile(`v=(\d+)\.`)

// findRedis returns the path of a redis-server that is recent enough.
func findRedis(ctx context.Context) (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errors.New("redis-server is not installed; on Debian or Ubuntu: apt-get install redis-server")
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("redis-server cannot be run: %w", err)
	}
	match := redisVersion.FindSubmatch(out)
	if match == nil {
		return "", errors.New("redis-server --version prints no version")
	}
	if major, _ := strconv.Atoi(string(match[1])); major < minRedis {
		return "", fmt.Errorf("redis-server is version %d, and version %d or later is needed", major, minRedis)
	}
	return path, nil
}

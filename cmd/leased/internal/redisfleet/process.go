package redisfleet

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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// minVersion is the oldest major version that redlockadapter admits.
	minVersion = 7
	// stopTimeout is the time a server has to exit after SIGTERM.
	stopTimeout   = 10 * time.Second
	probeInterval = 20 * time.Millisecond
)

var versionPattern = regexp.MustCompile(`v=(\d+)\.`)

// findServer returns the path of a redis-server that is recent enough.
func findServer(ctx context.Context) (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errors.New("redis-server is not installed; on Debian or Ubuntu: apt-get install redis-server")
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("redis-server cannot be run: %w", err)
	}
	match := versionPattern.FindSubmatch(out)
	if match == nil {
		return "", errors.New("redis-server --version prints no version")
	}
	if major, _ := strconv.Atoi(string(match[1])); major < minVersion {
		return "", fmt.Errorf("redis-server is version %d, and version %d or later is needed", major, minVersion)
	}
	return path, nil
}

// process is one redis-server process.
type process struct {
	addr   string
	cmd    *exec.Cmd
	exited chan struct{}
}

// launch starts an empty server and waits until it answers PING.
func launch(ctx context.Context, program, dir string) (*process, error) {
	addr, port, err := freeAddr()
	if err != nil {
		return nil, fmt.Errorf("find a port for Redis: %w", err)
	}
	log := filepath.Join(dir, "redis.log")
	s := &process{addr: addr, exited: make(chan struct{}), cmd: exec.Command(program, "--port", port, "--bind",
		"127.0.0.1", "--dir", dir,
		"--daemonize", "no", "--save", "", "--appendonly", "no", "--databases", "1", "--logfile", log)}
	s.cmd.SysProcAttr = attributes()
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	go func() { _ = s.cmd.Wait(); close(s.exited) }()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		if ping(ctx, addr) == nil {
			return s, nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return nil, fmt.Errorf("start Redis: the process has exited; see %s", log)
		case <-ctx.Done():
			s.stop()
			return nil, fmt.Errorf("start Redis: %w", context.Cause(ctx))
		}
	}
}

// stop sends SIGTERM to the server, and SIGKILL if it does not exit in time.
func (s *process) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Signal(os.Kill)
		<-s.exited
	}
}

// freeAddr returns a loopback address that no process listens on right now.
func freeAddr() (addr, port string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer l.Close()
	_, port, err = net.SplitHostPort(l.Addr().String())
	return l.Addr().String(), port, err
}

// ping fails until the server accepts commands.
func ping(ctx context.Context, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second,
		ReadTimeout: time.Second})
	defer client.Close()
	return client.Ping(ctx).Err()
}

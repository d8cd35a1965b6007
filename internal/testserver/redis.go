package testserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const redisAdvice = "install Redis (Debian: apt-get install redis-server)"

// RedisServer is a redis-server that a test can stop, kill, empty and restart at
// the same address. Its methods must not be called concurrently.
type RedisServer struct {
	// Addr is the address that it listens on, as host:port.
	Addr string
	// Dir is its data folder.
	Dir string

	spec   spec
	data   string
	server *Server // nil while it is down
}

// RedisOption changes how a redis-server is started.
type RedisOption func(*redisSettings)

type redisSettings struct {
	config []string
	env    []string
}

// RedisConfig sets a line of the server's configuration in the format of redis.conf.
func RedisConfig(name string, values ...string) RedisOption {
	return func(s *redisSettings) { s.config = append(append(s.config, "--"+name), values...) }
}

// RedisAppendOnly makes the server write each command to its append-only file
// before it answers. Without this option a restart loses all data.
func RedisAppendOnly() RedisOption {
	return func(s *redisSettings) {
		s.config = append(s.config, "--appendonly", "yes", "--appendfsync", "always")
	}
}

// RedisClusterMode makes the server a node of a Redis Cluster. Its cluster bus gets a free
// port: the default, 10000 above the server's, is among the ports of outgoing connections.
func RedisClusterMode() RedisOption {
	return func(s *redisSettings) {
		_, port, err := freeAddr()
		if err != nil {
			port = "0" // the server chooses its default
		}
		s.config = append(s.config, "--cluster-enabled", "yes", "--cluster-port", port)
	}
}

// RedisEnv sets a variable in the server's environment, for example LD_PRELOAD to
// load a library that changes its clock.
func RedisEnv(name, value string) RedisOption {
	return func(s *redisSettings) { s.env = append(s.env, name+"="+value) }
}

// Redis starts a redis-server for one test.
func Redis(t testing.TB, options ...RedisOption) *RedisServer {
	t.Helper()
	SkipIfShort(t)
	s, err := StartRedis(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// StartRedis starts a redis-server. The caller must close it.
func StartRedis(options ...RedisOption) (*RedisServer, error) {
	program, err := find(redisAdvice, "/usr/bin/redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	sp, err := newSpec("redis")
	if err != nil {
		return nil, err
	}
	var settings redisSettings
	for _, option := range options {
		option(&settings)
	}
	data := filepath.Join(sp.dir, "data")
	args := append([]string{program, "--port", sp.port, "--bind", "127.0.0.1", "--dir", data, "--daemonize", "no",
		"--save", "", "--appendonly", "no", "--databases", "1"}, settings.config...)
	// env execs the server, so the process id is the server's. A server that is still loading its data answers PING with
	// an error.
	sp.program, sp.args = "env", append(settings.env, args...)
	sp.answers = answers("PING\r\n", 5, "+PONG")
	s := &RedisServer{Addr: sp.addr, Dir: sp.dir, data: data, spec: sp}
	if err := s.Start(); err != nil {
		_ = os.RemoveAll(sp.dir)
		return nil, err
	}
	return s, nil
}

// Start restarts the server at its address, with the data on its disk.
func (s *RedisServer) Start() error {
	if s.server != nil {
		return errors.New("start Redis: it is already running; Stop or Kill it first")
	}
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		return fmt.Errorf("start Redis: %w", err)
	}
	server, err := launch(s.spec)
	if err != nil {
		return fmt.Errorf("start Redis: %w", err)
	}
	s.server = server
	return nil
}

// Stop shuts the server down and waits until it has exited. Its data stays.
func (s *RedisServer) Stop() { s.end(syscall.SIGTERM) }

// Kill ends the server with SIGKILL. The data on disk stays.
func (s *RedisServer) Kill() { s.end(syscall.SIGKILL) }

// Wipe kills the server if it runs, and removes its data. After a restart it is an
// empty node.
func (s *RedisServer) Wipe() error {
	s.Kill()
	return os.RemoveAll(s.data)
}

// Save copies the data on disk, for PutBack.
func (s *RedisServer) Save() error {
	if err := os.RemoveAll(s.saved()); err != nil {
		return err
	}
	return os.CopyFS(s.saved(), os.DirFS(s.data))
}

// PutBack kills the server if it runs, and restores the folder that Save copied.
func (s *RedisServer) PutBack() error {
	if err := s.Wipe(); err != nil {
		return err
	}
	return os.CopyFS(s.data, os.DirFS(s.saved()))
}

func (s *RedisServer) saved() string { return s.data + ".saved" }

// Pause stops the process with SIGSTOP. The kernel still accepts connections, but
// the server does not answer.
func (s *RedisServer) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a Pause. The server then executes the commands sent meanwhile.
func (s *RedisServer) Resume() { s.signal(syscall.SIGCONT) }

// Pid returns the process id of the server, or 0 while it is down.
func (s *RedisServer) Pid() int {
	if s.server == nil {
		return 0
	}
	return s.server.Pid()
}

// Log returns the end of the server's output since its last start.
func (s *RedisServer) Log() string {
	if s.server == nil {
		return ""
	}
	return s.server.log.String()
}

// Close stops the server and removes its folder.
func (s *RedisServer) Close() {
	s.Kill()
	_ = os.RemoveAll(s.Dir)
}

func (s *RedisServer) signal(signal syscall.Signal) {
	if s.server != nil {
		_ = s.server.process.Signal(signal)
	}
}

func (s *RedisServer) end(signal syscall.Signal) {
	if s.server == nil {
		return
	}
	s.signal(signal)
	s.signal(syscall.SIGCONT) // a paused process does not see SIGTERM
	select {
	case <-s.server.exited:
	case <-time.After(30 * time.Second):
		_ = s.server.process.Kill()
		<-s.server.exited
	}
	s.server = nil
}

package testserver

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

const redisAdvice = "install Redis (Debian: apt-get install redis-server)"

// RedisServer is a redis-server that a test can stop, kill, empty and restart at
// the same address. Its methods must not be called concurrently. While it is paused, the
// kernel still accepts connections; after that it executes the commands sent meanwhile.
type RedisServer struct {
	*Server
	data string
}

// RedisOption changes how a redis-server is started.
type RedisOption func(*Server)

// RedisConfig sets a line of the server's configuration in the format of redis.conf.
func RedisConfig(name string, values ...string) RedisOption {
	return func(s *Server) { s.Args = append(append(s.Args, "--"+name), values...) }
}

// RedisAppendOnly makes the server write each command to its append-only file
// before it answers. Without this option a restart loses all data.
func RedisAppendOnly() RedisOption {
	return func(s *Server) { s.Args = append(s.Args, "--appendonly", "yes", "--appendfsync", "always") }
}

// RedisClusterMode makes the server a node of a Redis Cluster. Its cluster bus gets a free
// port: the default, 10000 above the server's, is among the ports of outgoing connections.
func RedisClusterMode() RedisOption {
	return func(s *Server) {
		port := "0" // the server chooses its default
		if addresses, err := FreeAddresses(1); err == nil {
			port = portOf(addresses[0])
		}
		s.Args = append(s.Args, "--cluster-enabled", "yes", "--cluster-port", port)
	}
}

// RedisEnv sets a variable in the server's environment, for example LD_PRELOAD to
// load a library that changes its clock.
func RedisEnv(name, value string) RedisOption {
	return func(s *Server) { s.Env = append(s.Env, name+"="+value) }
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
	var data string
	server, err := start("redis", nil, func(s *Server) error {
		program, err := find(redisAdvice, "/usr/bin/redis-server", "redis-server")
		if err != nil {
			return err
		}
		data = filepath.Join(s.Dir, "data")
		// A server that is still loading its data answers PING with an error.
		s.answers = answers("PING\r\n", 5, "+PONG")
		s.Args = []string{program, "--port", portOf(s.Addr), "--bind", "127.0.0.1", "--dir", data, "--daemonize", "no",
			"--save", "", "--appendonly", "no", "--databases", "1"}
		for _, option := range options {
			option(s)
		}
		return os.Mkdir(data, 0o700)
	})
	if err != nil {
		return nil, err
	}
	return &RedisServer{server, data}, nil
}

// Stop shuts the server down and waits until it has exited. Its data stays.
func (s *RedisServer) Stop() { s.End(syscall.SIGTERM, stopLimit) }

// Wipe kills the server if it runs, and removes its data. After a restart it is an
// empty node.
func (s *RedisServer) Wipe() error {
	s.Kill()
	return errors.Join(os.RemoveAll(s.data), os.Mkdir(s.data, 0o700))
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

// Close stops the server and removes its folder.
func (s *RedisServer) Close() {
	s.Kill()
	_ = os.RemoveAll(s.Dir)
}

package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const redisAdvice = "install Redis (Debian: apt-get install redis-server)"

// RedisServer is a redis-server that a test can stop, kill, empty and start
// again at the same address. Its methods are for one goroutine at a time.
type RedisServer struct {
	// Addr is where it listens, as host and port.
	Addr string
	// Dir is its folder.
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

// RedisConfig sets a line of the server's configuration, as redis.conf has it.
func RedisConfig(name string, values ...string) RedisOption {
	return func(s *redisSettings) { s.config = append(append(s.config, "--"+name), values...) }
}

// RedisAppendOnly has the server write each command to its file before it
// answers. Without it a restart begins with no data.
func RedisAppendOnly() RedisOption {
	return func(s *redisSettings) {
		s.config = append(s.config, "--appendonly", "yes", "--appendfsync", "always")
	}
}

// RedisEnv sets a variable in the server's environment, such as the LD_PRELOAD
// of a library that moves its clock.
func RedisEnv(name, value string) RedisOption {
	return func(s *redisSettings) { s.env = append(s.env, name+"="+value) }
}

// Redis starts a redis-server for one test.
func Redis(t testing.TB, options ...RedisOption) *RedisServer {
	t.Helper()
	s, err := StartRedis(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// StartRedis starts a redis-server that the caller closes.
func StartRedis(options ...RedisOption) (*RedisServer, error) {
	program, err := find(redisAdvice, "/usr/bin/redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	dir, err := folder(nil, "redis")
	if err != nil {
		return nil, fmt.Errorf("make a folder for Redis: %w", err)
	}
	addr, port, err := freeAddr()
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	var settings redisSettings
	for _, option := range options {
		option(&settings)
	}
	data := filepath.Join(dir, "data")
	args := append([]string{program, "--port", port, "--bind", "127.0.0.1", "--dir", data, "--daemonize", "no",
		"--save", "", "--appendonly", "no", "--databases", "1"}, settings.config...)
	// env replaces itself with the server, so that the process id is the server's.
	s := &RedisServer{Addr: addr, Dir: dir, data: data,
		spec: spec{program: "env", args: append(settings.env, args...), halt: syscall.SIGTERM, answers: redisAnswers}}
	if err := s.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// Start starts the server again at its address, with the data that it has.
func (s *RedisServer) Start() error {
	if s.server != nil {
		return errors.New("start Redis: it runs already; Stop or Kill it first")
	}
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		return fmt.Errorf("start Redis: %w", err)
	}
	server, err := launch(s.spec, s.Dir, s.Addr)
	if err != nil {
		return fmt.Errorf("start Redis: %w", err)
	}
	s.server = server
	return nil
}

// Stop asks the server to end and waits until it is gone. Its data stays.
func (s *RedisServer) Stop() { s.end(syscall.SIGTERM) }

// Kill ends the server with SIGKILL. What was on disk stays.
func (s *RedisServer) Kill() { s.end(syscall.SIGKILL) }

// Wipe kills the server if it runs, and removes its data: started again, it is
// an emptied node.
func (s *RedisServer) Wipe() error {
	s.Kill()
	return os.RemoveAll(s.data)
}

// Save keeps a copy of what is on its disk now, for PutBack.
func (s *RedisServer) Save() error {
	if err := os.RemoveAll(s.saved()); err != nil {
		return err
	}
	return os.CopyFS(s.saved(), os.DirFS(s.data))
}

// PutBack kills the server if it runs, and puts the folder back that was saved.
func (s *RedisServer) PutBack() error {
	if err := s.Wipe(); err != nil {
		return err
	}
	return os.CopyFS(s.data, os.DirFS(s.saved()))
}

func (s *RedisServer) saved() string { return s.data + ".saved" }

// Pause stops the process with SIGSTOP: it accepts connections, as the kernel
// does that for it, and answers nothing.
func (s *RedisServer) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a Pause. What was sent meanwhile is then carried out.
func (s *RedisServer) Resume() { s.signal(syscall.SIGCONT) }

// Pid is the process id of the server, 0 while it is down.
func (s *RedisServer) Pid() int {
	if s.server == nil {
		return 0
	}
	return s.server.Pid()
}

// Log is the end of what the server has printed since it was last started.
func (s *RedisServer) Log() string {
	if s.server == nil {
		return ""
	}
	return s.server.log.String()
}

// Close ends the server and removes its folder.
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

// redisAnswers sends PING. A server that is still loading its data says so.
func redisAnswers(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if line != "+PONG\r\n" {
		return fmt.Errorf("Redis answered %q", line)
	}
	return nil
}

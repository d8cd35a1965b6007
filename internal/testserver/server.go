package testserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startLimit is how long a server may take to answer. It is generous because the
// machine may be busy with other tests.
const startLimit = 2 * time.Minute

// stopLimit is how long a server may take to shut down before it is killed.
const stopLimit = 30 * time.Second

// Server is a running server. Kill leaves its data.
type Server struct {
	Process
	// Addr is the address that it listens on, as host:port.
	Addr string
	// DSN is the data source name for the usual Go driver.
	DSN string
	// Dir is its data folder. Stop removes it.
	Dir string

	halt    syscall.Signal // requests a fast, clean shutdown
	answers func(addr string) error
}

// newServer returns a server with a new folder and a free address, which is not started. It runs as the first of the
// named users that exists, since servers refuse to run as root, or as the user of the test.
func newServer(name string, users ...string) (*Server, error) {
	addresses, err := FreeAddresses(1)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	s := &Server{Process: Process{Name: name}, Addr: addresses[0], halt: syscall.SIGTERM}
	if len(users) > 0 {
		s.user, err = unprivileged(users...)
	}
	if err == nil {
		s.Dir, err = folder(s.user, name)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	s.dir, s.Log = s.Dir, filepath.Join(s.Dir, "server.log")
	return s, nil
}

// start starts a server in a new folder. prepare sets its program, and how it answers.
func start(name string, users []string, prepare func(s *Server) error) (*Server, error) {
	s, err := newServer(name, users...)
	if err != nil {
		return nil, err
	}
	if err = prepare(s); err == nil {
		err = s.Start()
	}
	if err != nil {
		_ = os.RemoveAll(s.Dir)
		return nil, err
	}
	return s, nil
}

// Start starts the server, on its data, and waits until it answers. The servers of this package are running; use it
// after Kill.
func (s *Server) Start() error {
	if s.Pid() != 0 {
		return fmt.Errorf("start %s: it is already running; Stop or Kill it first", s.Name)
	}
	if err := s.Process.Start(); err != nil {
		return err
	}
	limit := time.After(startLimit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.answers(s.Addr)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return fmt.Errorf("%s exited before it answered; its log:\n%s", s.Name, s.LogEnd())
		case <-limit:
			s.Kill()
			return fmt.Errorf("%s did not answer at %s within %v: %w; its log:\n%s", s.Name, s.Addr, startLimit, err,
				s.LogEnd())
		}
	}
}

// Stop stops the server, waits until it has exited and removes its folder.
func (s *Server) Stop() {
	s.End(s.halt, stopLimit)
	_ = os.RemoveAll(s.Dir)
}

// answers returns a check that sends a request to a server and expects an answer of n bytes
// that ends with want.
func answers(request string, n int, want string) func(addr string) error {
	return func(addr string) error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		if _, err := io.WriteString(conn, request); err != nil {
			return err
		}
		answer := make([]byte, n)
		if _, err := io.ReadFull(conn, answer); err != nil {
			return err
		}
		if !strings.HasSuffix(string(answer), want) {
			return fmt.Errorf("the server answered %q", answer)
		}
		return nil
	}
}

// setUp runs a program that initializes the folder of a server.
func (s *Server) setUp(program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.SysProcAttr = s.Dir, attributes(s.user, false)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w; its output:\n%s", program, err, output)
	}
	return nil
}

// unprivileged returns the first of the named users that exists if the test runs
// as root, because servers refuse to run as root. Otherwise it returns nil.
func unprivileged(names ...string) (*user.User, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is the user of the test
	}
	for _, name := range names {
		if u, err := user.Lookup(name); err == nil {
			return u, nil
		}
	}
	return nil, fmt.Errorf("none of the users %q exists, and the server refuses to run as root", names)
}

func credential(u *user.User) *syscall.Credential {
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}
}

// folder creates a server's folder, owned by the user that runs the server. It is
// not inside the test's temporary folder, which other users cannot read.
func folder(u *user.User, name string) (string, error) {
	dir, err := os.MkdirTemp("", "leased-"+name+"-")
	if err != nil || u == nil {
		return dir, err
	}
	c := credential(u)
	return dir, os.Chown(dir, int(c.Uid), int(c.Gid))
}

// find returns the first executable that matches one of the patterns. Within a
// pattern the largest name comes first, which prefers newer versions.
func find(advice string, patterns ...string) (string, error) {
	for _, pattern := range patterns {
		matches, _ := filepath.Glob(pattern)
		for i := len(matches) - 1; i >= 0; i-- {
			if path, err := exec.LookPath(matches[i]); err == nil {
				return path, nil
			}
		}
		if path, err := exec.LookPath(pattern); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no program found at %q: %s", patterns, advice)
}

// Shared starts one server for all tests of a package, when the first test calls
// Get. TestMain stops it:
//
//	var postgres = testserver.Shared{Start: testserver.StartPostgres}
//
//	func TestMain(m *testing.M) {
//		code := m.Run()
//		postgres.Stop()
//		os.Exit(code)
//	}
type Shared struct {
	// Start starts the server.
	Start func() (*Server, error)

	mu     sync.Mutex
	server *Server
	err    error
}

// Get returns the running server.
func (s *Shared) Get(t testing.TB) *Server {
	t.Helper()
	SkipIfShort(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil && s.err == nil {
		s.server, s.err = s.Start()
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server
}

// Stop stops the server if a test has started it.
func (s *Shared) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.Stop()
		s.server, s.err = nil, errors.New("the shared server was stopped")
	}
}

package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startLimit is how long a server may take to answer. It is generous: the
// machine may be busy with other tests.
const startLimit = 2 * time.Minute

// Server is a running server.
type Server struct {
	// Addr is where it listens, as host and port.
	Addr string
	// DSN is what the usual Go driver for it connects with.
	DSN string
	// Dir is its folder. It is removed by Stop.
	Dir string

	process *os.Process
	exited  chan struct{}
	log     *tail
	halt    os.Signal
}

// spec says how to run one kind of server.
type spec struct {
	program string
	args    []string
	user    *user.User // nil: the user of the test
	halt    os.Signal  // asks for a quick and clean end
	answers func(addr string) error
}

// Pid is the process id of the server, for tests that stop or kill it.
func (s *Server) Pid() int { return s.process.Pid }

// Stop ends the server, waits until it is gone and removes its folder.
func (s *Server) Stop() {
	_ = s.process.Signal(s.halt)
	select {
	case <-s.exited:
	case <-time.After(30 * time.Second):
		_ = s.process.Kill()
		<-s.exited
	}
	_ = os.RemoveAll(s.Dir)
}

// launch starts the program of sp and waits until it answers at addr.
func launch(sp spec, dir, addr string) (*Server, error) {
	s := &Server{Addr: addr, Dir: dir, exited: make(chan struct{}), log: &tail{}, halt: sp.halt}
	cmd := exec.Command(sp.program, sp.args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.SysProcAttr = attributes(sp.user, true)
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", sp.program, err)
	}
	s.process = cmd.Process
	go func() {
		_ = cmd.Wait()
		close(s.exited)
	}()
	limit := time.After(startLimit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := sp.answers(addr)
		if err == nil {
			return s, nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return nil, fmt.Errorf("%s ended before it answered; its log:\n%s", sp.program, s.log)
		case <-limit:
			_ = s.process.Kill()
			<-s.exited
			return nil, fmt.Errorf("%s did not answer at %s within %v: %w; its log:\n%s", sp.program, addr, startLimit, err, s.log)
		}
	}
}

// setUp runs a program that prepares a server's folder.
func setUp(u *user.User, dir, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = attributes(u, false)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w; its output:\n%s", program, err, output)
	}
	return nil
}

// unprivileged is the first of the named users that exists if the test runs as
// root, which servers refuse to do, and nil otherwise.
func unprivileged(names ...string) (*user.User, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is the user of the test
	}
	for _, name := range names {
		if u, err := user.Lookup(name); err == nil {
			return u, nil
		}
	}
	return nil, fmt.Errorf("none of the users %q exists, and the server does not run as root", names)
}

func credential(u *user.User) *syscall.Credential {
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}
}

// folder makes a server's folder, owned by the user who runs it. It is not the
// test's own temporary folder: other users may not look into that.
func folder(u *user.User, name string) (string, error) {
	dir, err := os.MkdirTemp("", "leased-"+name+"-")
	if err != nil || u == nil {
		return dir, err
	}
	c := credential(u)
	return dir, os.Chown(dir, int(c.Uid), int(c.Gid))
}

// removeUnless removes the folder of a server that did not start.
func removeUnless(started **Server, dir string) {
	if *started == nil {
		_ = os.RemoveAll(dir)
	}
}

// freeAddr is a loopback address that nobody listens at right now.
func freeAddr() (addr, port string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer l.Close()
	_, port, err = net.SplitHostPort(l.Addr().String())
	return l.Addr().String(), port, err
}

// find is the first match of the patterns that can be run, the largest first
// within one pattern, so that a newer version is preferred.
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

// Shared starts one server for all tests of a package, when the first of them
// asks for it. TestMain stops it:
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

// Stop stops the server if any test asked for it.
func (s *Shared) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.Stop()
		s.server, s.err = nil, errors.New("the shared server was stopped")
	}
}

// forTest starts a server that lives as long as the test.
func forTest(t testing.TB, start func() (*Server, error)) *Server {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// tail keeps the end of a server's log for error messages.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *tail) Write(p []byte) (int, error) {
	const keep = 1 << 14
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() > keep {
		l.buf.Next(l.buf.Len() - keep/2)
	}
	return l.buf.Write(p)
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

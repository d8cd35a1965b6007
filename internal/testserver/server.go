package testserver

import (
	"bytes"
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

// Server is a running server.
type Server struct {
	// Addr is the address that it listens on, as host:port.
	Addr string
	// DSN is the data source name for the usual Go driver.
	DSN string
	// Dir is its data folder. Stop removes it.
	Dir string

	spec    spec
	process *os.Process
	exited  chan struct{}
	log     *tail
}

// spec describes how to run a server.
type spec struct {
	user            *user.User // nil: the user of the test
	dir, addr, port string

	program string
	args    []string
	halt    os.Signal // requests a fast, clean shutdown
	answers func(addr string) error
	dsn     string
}

// newSpec returns a spec with a new folder and a free address. The server runs as the first of
// the named users that exists, since servers refuse to run as root, or as the user of the test.
func newSpec(name string, users ...string) (sp spec, err error) {
	sp.halt = syscall.SIGTERM
	if sp.addr, sp.port, err = freeAddr(); err == nil && len(users) > 0 {
		sp.user, err = unprivileged(users...)
	}
	if err == nil {
		sp.dir, err = folder(sp.user, name)
	}
	if err != nil {
		return sp, fmt.Errorf("prepare %s: %w", name, err)
	}
	return sp, nil
}

// Pid returns the process id of the server, for tests that stop or kill it.
func (s *Server) Pid() int { return s.process.Pid }

// Stop stops the server, waits until it has exited and removes its folder.
func (s *Server) Stop() {
	_ = s.process.Signal(s.spec.halt)
	select {
	case <-s.exited:
	case <-time.After(30 * time.Second):
		_ = s.process.Kill()
		<-s.exited
	}
	_ = os.RemoveAll(s.Dir)
}

// Kill ends the server with SIGKILL. Its data stays.
func (s *Server) Kill() {
	_ = s.process.Kill()
	<-s.exited
}

// Restart starts a killed server again, on its data.
func (s *Server) Restart() error {
	again, err := launch(s.spec)
	if err != nil {
		return err
	}
	s.process, s.exited, s.log = again.process, again.exited, again.log
	return nil
}

// launch starts the program of sp and waits until it answers.
func launch(sp spec) (*Server, error) {
	s := &Server{Addr: sp.addr, DSN: sp.dsn, Dir: sp.dir, spec: sp, exited: make(chan struct{}), log: &tail{}}
	cmd := exec.Command(sp.program, sp.args...)
	cmd.Dir = sp.dir
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
		err := sp.answers(sp.addr)
		if err == nil {
			return s, nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return nil, fmt.Errorf("%s exited before it answered; its log:\n%s", sp.program, s.log)
		case <-limit:
			_ = s.process.Kill()
			<-s.exited
			return nil, fmt.Errorf("%s did not answer at %s within %v: %w; its log:\n%s", sp.program, sp.addr, startLimit,
				err, s.log)
		}
	}
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
func (sp *spec) setUp(program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Dir = sp.dir
	cmd.SysProcAttr = attributes(sp.user, false)
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

// removeUnless removes the folder of a server that failed to start.
func removeUnless(started **Server, dir string) {
	if *started == nil {
		_ = os.RemoveAll(dir)
	}
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

package raftstore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// envNode makes the test binary a node: its value is a nodeSpec as JSON.
const envNode = "RAFTSTORE_TEST_NODE"

func TestMain(m *testing.M) {
	if spec := os.Getenv(envNode); spec != "" {
		runNode(spec)
		return
	}
	os.Exit(m.Run())
}

// nodeSpec configures a node process.
type nodeSpec struct {
	ID, Dir, Address string
	Log              logstore.Kind
	Heartbeat        time.Duration
}

// call is one request to a node process, and answered is its answer. Each is a line of
// JSON.
type call struct {
	Op                   string
	Session              engine.SessionID
	Nonce                engine.Nonce
	Resource             fencing.Resource
	ID, Address, Control string
	HasState, Wait       bool
	Index                uint64
	Data                 []byte
}

type answered struct {
	Token  fencing.Token
	Index  uint64
	Status Status
	Data   []byte
	Error  string
	// Unknown means that the call may have taken effect. Refused means that it has not,
	// and that the caller should retry, perhaps with another node.
	Unknown, Refused bool
}

// runNode is the main function of a node process. It serves calls on a separate port
// until it receives a signal or the node ends.
func runNode(text string) {
	var spec nodeSpec
	must(json.Unmarshal([]byte(text), &spec))
	n, err := Open(Config{ID: spec.ID, Dir: spec.Dir, Address: spec.Address, LogStore: spec.Log,
		HeartbeatTimeout: spec.Heartbeat, StoreDeadline: time.Minute, // a busy disk is not a failed one
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		must(stop(ctx, n))
		os.Exit(0)
	}()
	fmt.Println("ready", listener.Addr())
	for {
		conn, err := listener.Accept()
		must(err)
		go func() {
			defer conn.Close()
			in, out := json.NewDecoder(conn), json.NewEncoder(conn)
			for {
				var c call
				if in.Decode(&c) != nil || out.Encode(n.answerCall(c)) != nil {
					return
				}
			}
		}()
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (n *Node) answerCall(c call) (a answered) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	backend, err := NewBackend(n)
	must(err)
	s := &Session{backend: backend, config: engine.SessionConfig{ID: c.Session, TTL: time.Hour,
		Clock: engine.SystemClock()}}
	n.fsm.Read(func(m *machine.Machine) { s.number = m.SessionInfo(c.Session).Incarnation })
	switch c.Op {
	case "bootstrap":
		err = n.Bootstrap()
	case "status":
		a.Status = n.Status()
	case "open":
		_, err = backend.Open(ctx, s.config)
	case "acquire":
		var grant engine.Grant
		request := lockRequest(c.Nonce, c.Resource)
		request.Wait = c.Wait
		grant, err = s.Acquire(ctx, request)
		a.Token = grant.Token
	case "release":
		err = s.Release(ctx, engine.Held{Nonce: c.Nonce})
	case "join":
		err = n.Join(ctx, remoteMembership(c.Control))
	case "learner":
		a.Index, err = n.AddLearner(ctx, Joiner{ID: c.ID, Address: c.Address, HasState: c.HasState})
	case "promote":
		err = n.Promote(ctx, c.ID, c.Index)
	case "remove":
		err = n.Remove(ctx, c.ID)
	case "transfer":
		err = n.Transfer(ctx, c.ID)
	case "save":
		var saved bytes.Buffer
		_, err = n.SaveSnapshot(ctx, &saved)
		a.Data = saved.Bytes()
	case "restore":
		a.Token, err = n.RestoreSnapshot(ctx, bytes.NewReader(c.Data))
	default:
		err = fmt.Errorf("unknown call %q", c.Op)
	}
	if err != nil {
		a.Error = err.Error()
		a.Unknown = errors.Is(err, engine.ErrUncertain)
		a.Refused = errors.Is(err, engine.ErrUnavailable)
	}
	return a
}

// remoteMembership calls the leader at a control address.
type remoteMembership string

// AddLearner asks the leader.
func (m remoteMembership) AddLearner(_ context.Context, j Joiner) (uint64, error) {
	a, err := m.ask(call{Op: "learner", ID: j.ID, Address: j.Address, HasState: j.HasState})
	return a.Index, err
}

// Promote asks the leader.
func (m remoteMembership) Promote(_ context.Context, id string, applied uint64) error {
	a, err := m.ask(call{Op: "promote", ID: id, Index: applied})
	if err != nil && strings.Contains(a.Error, ErrBehind.Error()) {
		return ErrBehind
	}
	return err
}

// ask makes one call, and returns an error from which the joining node knows whether to repeat it.
func (m remoteMembership) ask(c call) (answered, error) {
	a, err := callNode(string(m), c)
	switch {
	case a.Unknown:
		err = fmt.Errorf("%w: %w", engine.ErrUncertain, err)
	case a.Refused:
		err = fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	return a, err
}

// callNode makes one call on a new connection.
func callNode(control string, c call) (a answered, err error) {
	conn, err := net.Dial("tcp", control)
	if err != nil {
		return answered{Refused: true}, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(engine.MonotonicClock().Now().Time().Add(30 * time.Second))
	if err := json.NewEncoder(conn).Encode(c); err != nil {
		return answered{Unknown: true}, err
	}
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return answered{Unknown: true}, err
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// process is a node in a separate process.
type process struct {
	t    testing.TB
	spec nodeSpec

	mu      sync.Mutex
	cmd     *exec.Cmd
	control string
	exited  chan struct{}
}

func newProcess(t testing.TB, id string, kind logstore.Kind) *process {
	p := &process{t: t, spec: nodeSpec{ID: id, Dir: t.TempDir(), Address: testserver.FreeAddr(t), Log: kind}}
	t.Cleanup(func() {
		p.kill()
		if log, err := os.ReadFile(filepath.Join(p.spec.Dir, "stderr")); err == nil && t.Failed() {
			t.Logf("stderr of %s:\n%s", id, log[max(0, len(log)-2000):])
		}
	})
	return p
}

// start runs the node, under another program if there is a prefix.
func (p *process) start(prefix ...string) {
	p.t.Helper()
	testserver.SkipIfShort(p.t)
	binary, err := os.Executable()
	require.NoError(p.t, err)
	spec, err := json.Marshal(p.spec)
	require.NoError(p.t, err)
	line := append(prefix, binary)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), envNode+"="+string(spec))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.OpenFile(filepath.Join(p.spec.Dir, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(p.t, err)
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, cmd.Start())
	exited := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.control, p.exited = cmd, "", exited
	p.mu.Unlock()
	scanner := bufio.NewScanner(out)
	if scanner.Scan() {
		p.mu.Lock()
		p.control = strings.TrimPrefix(scanner.Text(), "ready ")
		p.mu.Unlock()
	}
	go func() { _ = cmd.Wait(); close(exited) }()
}

// kill ends the process with SIGKILL, and everything that it started.
func (p *process) kill() {
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.mu.Unlock()
	if cmd != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
	}
}

func (p *process) call(c call) (answered, error) {
	p.mu.Lock()
	control := p.control
	p.mu.Unlock()
	if control == "" {
		return answered{Refused: true}, errors.New("not started")
	}
	return callNode(control, c)
}

// processes is a cluster whose nodes are separate processes.
type processes struct {
	t   testing.TB
	all []*process
}

// slowHeartbeat prevents elections on a busy machine, for tests that make a call only once.
const slowHeartbeat = 2 * time.Second

// startProcesses bootstraps one node and has the others join it.
func startProcesses(t testing.TB, size int, kind logstore.Kind, heartbeat time.Duration) *processes {
	t.Helper()
	ps := &processes{t: t}
	for i := range size {
		p := newProcess(t, fmt.Sprintf("p%d", i), kind)
		p.spec.Heartbeat = heartbeat
		p.start()
		ps.all = append(ps.all, p)
		if i == 0 {
			_, err := p.call(call{Op: "bootstrap"})
			require.NoError(t, err)
		} else {
			ps.join(p)
		}
	}
	return ps
}

// join has a process join, and repeats that if the leader changes meanwhile.
func (ps *processes) join(p *process) {
	ps.t.Helper()
	eventually(ps.t, p.spec.ID+" joins", func() bool {
		a, err := p.call(call{Op: "join", Control: ps.leader().control})
		require.True(ps.t, err == nil || a.Unknown || a.Refused, "%v", err)
		return err == nil
	})
}

// leader waits for a process that leads and returns it.
func (ps *processes) leader() (leader *process) {
	ps.t.Helper()
	eventually(ps.t, "a process that leads", func() bool {
		for _, p := range ps.all {
			if a, err := p.call(call{Op: "status"}); err == nil && a.Status.Serves {
				leader = p
			}
		}
		return leader != nil
	})
	return leader
}

// ask repeats a call, with the same nonce, at one process after the other until its
// outcome is known.
func (ps *processes) ask(c call) (answered, error) {
	for i := 0; ; i++ {
		a, err := ps.all[i%len(ps.all)].call(c)
		if err == nil || !a.Unknown && !a.Refused || i > 30000 {
			return a, err
		}
		if i%len(ps.all) == len(ps.all)-1 {
			<-time.After(5 * time.Millisecond)
		}
	}
}

// agree waits until all processes have applied the same entry, and checks that they have
// the same chain hash.
func (ps *processes) agree() {
	ps.t.Helper()
	var states []Status
	eventually(ps.t, "all processes at one entry", func() bool {
		states = nil
		for _, p := range ps.all {
			a, err := p.call(call{Op: "status"})
			if err != nil {
				return false
			}
			states = append(states, a.Status)
		}
		for _, s := range states {
			if s.Chain.Index != states[0].Chain.Index {
				return false
			}
		}
		return true
	})
	for _, s := range states {
		require.Equal(ps.t, states[0].Chain, s.Chain, "%s and %s", states[0].ID, s.ID)
		require.Equal(ps.t, states[0].LastToken, s.LastToken)
	}
}

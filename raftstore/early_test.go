package raftstore

import (
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/raftstore/transport"
)

// proxy forwards connections to a node, which advertises the address of the proxy.
type proxy struct {
	t               testing.TB
	address, target string

	mu       sync.Mutex
	listener net.Listener
	open     []net.Conn
}

// listen accepts connections.
func (p *proxy) listen() {
	listener, err := net.Listen("tcp", p.address)
	require.NoError(p.t, err)
	p.mu.Lock()
	p.listener = listener
	p.mu.Unlock()
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.target)
			if err != nil {
				in.Close()
				continue
			}
			p.mu.Lock()
			p.open = append(p.open, in, out)
			p.mu.Unlock()
			go func() { _, _ = io.Copy(in, out); in.Close() }()
			go func() { _, _ = io.Copy(out, in); out.Close() }()
		}
	}()
}

// refuse closes the port. Open connections stay.
func (p *proxy) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener.Close()
}

// cut closes the open connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.open {
		conn.Close()
	}
	p.open = nil
}

// startProxied starts three nodes behind proxies. It returns the leader, the others, and the
// proxy of each node.
func startProxied(t *testing.T) (leader *Node, followers []*Node, proxies map[*Node]*proxy) {
	t.Helper()
	var all []*proxy
	c := startTCP(t, 3, DefaultLogStore, slowTimeouts, func(config *Config) {
		p := &proxy{t: t, address: testserver.FreeAddr(t), target: testserver.FreeAddr(t)}
		config.Address, config.Advertise = p.target, p.address
		config.HeartbeatTimeout = 6 * time.Second // nothing but the early replacement may end a leadership
		p.listen()
		t.Cleanup(func() { p.refuse(); p.cut() })
		all = append(all, p)
	})
	leader, proxies = c.leader(), map[*Node]*proxy{}
	for i, n := range c.nodes {
		proxies[n] = all[i]
		if n != leader {
			followers = append(followers, n)
			eventually(t, "a connection from the leader", func() bool { return receivesFrom(n, leader) })
		}
	}
	return leader, followers, proxies
}

func receivesFrom(n, leader *Node) bool { return n.transport.(*transport.TCP).Receives(leader.ID()) }

// The followers of a leader whose process has ended elect the next one at once.
func TestDeadLeaderIsReplacedEarly(t *testing.T) {
	t.Parallel()
	c := startTCP(t, 3, DefaultLogStore, slowTimeouts)
	old := c.leader()
	term := old.raft.CurrentTerm()
	require.NoError(t, old.Close())
	next := c.leader()
	require.NotEqual(t, old, next)
	for _, n := range c.nodes {
		if n != old {
			require.NotNil(t, n.early.Load(), "%s has waited for the timeout", n.ID())
			require.Equal(t, term, n.early.Load().term)
		}
	}
}

// A leader that dies soon after an early election is replaced after the timeout, so that
// members that crash one after the other do not cause elections without a pause.
func TestCrashLoopIsNotReplacedEarly(t *testing.T) {
	t.Parallel()
	c := startTCP(t, 3, DefaultLogStore, slowTimeouts)
	old := c.leader()
	recent := &earlyElection{term: old.raft.CurrentTerm() - 1, at: stopwatch.Now().Time().Add(time.Hour)}
	for _, n := range c.nodes {
		n.early.Store(recent)
	}
	require.NoError(t, old.Close())
	require.NotEqual(t, old, c.leader())
	for _, n := range c.nodes {
		require.Equal(t, recent, n.early.Load(), n.ID())
	}
}

// A leader that lives keeps leading, whatever happens to its port and its connections.
func TestLivingLeaderIsNotReplacedEarly(t *testing.T) {
	t.Parallel()
	leader, followers, proxies := startProxied(t)
	term := leader.raft.CurrentTerm()
	for _, fault := range []struct {
		name           string
		inject, repair func()
	}{
		{"closes idle connections", func() {
			for range 5 {
				for _, n := range followers {
					eventually(t, "a connection from the leader", func() bool { return receivesFrom(n, leader) })
					proxies[n].cut()
				}
			}
		}, func() {}},
		{"restarts its listener", proxies[leader].refuse, proxies[leader].listen},
		{"is refused by the firewall of one follower, which has lost its connections", func() {
			proxies[leader].refuse()
			proxies[followers[0]].refuse()
			proxies[followers[0]].cut()
			eventually(t, "no connection from the leader", func() bool { return !receivesFrom(followers[0], leader) })
		}, func() {
			proxies[leader].listen()
			proxies[followers[0]].listen()
		}},
	} {
		fault.inject()
		var wg sync.WaitGroup
		for _, n := range followers {
			wg.Go(func() { n.replaceEarly(leader.ID()) })
		}
		wg.Wait()
		fault.repair()
		for _, n := range followers {
			eventually(t, "a connection from the leader", func() bool { return receivesFrom(n, leader) })
		}
		require.True(t, leader.Leads(), fault.name)
		require.Equal(t, term, leader.raft.CurrentTerm(), fault.name)
	}
}

// Only a port on which no process listens refuses connections. One without room for further
// connections does not.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.False(t, refusesConnections(listener.Addr().String()), "a process listens")
	listener.Close()
	// A child that another test forks has the socket until it runs its program.
	eventually(t, "no process listens", func() bool { return refusesConnections(listener.Addr().String()) })
	require.False(t, refusesConnections("no such host:1"))

	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer syscall.Close(socket)
	require.NoError(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(socket, 0))
	bound, err := syscall.Getsockname(socket)
	require.NoError(t, err)
	full := fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
	for {
		conn, err := net.DialTimeout("tcp", full, time.Second)
		if err != nil {
			break
		}
		defer conn.Close()
	}
	require.False(t, refusesConnections(full), "the backlog is full")
}

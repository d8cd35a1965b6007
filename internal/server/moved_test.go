package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
)

// address is an address that can move to another server: new connections go to that one,
// open ones stay.
type address struct {
	net.Listener
	mu sync.Mutex
	to string
}

func newAddress(t *testing.T, to string) *address {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a := &address{Listener: listener, to: to}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go a.serve(conn)
		}
	}()
	return a
}

func (a *address) serve(conn net.Conn) {
	defer conn.Close()
	a.mu.Lock()
	to := a.to
	a.mu.Unlock()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	}()
	_, _ = io.Copy(conn, server)
}

func (a *address) move(to string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.to = to
}

// movedFleet has a Redis node whose address leads one member to another server than the
// others.
type movedFleet struct {
	t       *testing.T
	cluster *cluster
	last    map[int]float64 // the largest token of each lock
	grants  int
}

// The address of a Redis node moves to a new, empty server while the old one keeps serving
// open connections. Two members connect again, find the new server, and one of them leads.
// The third one, paused meanwhile, has connections to the old server. No lock has two
// holders, no token is granted twice, and tokens grow.
func TestMovedAddress(t *testing.T) {
	t.Parallel()
	servers, other := startRedis(t, 3), testserver.Redis(t)
	fleet := engine.Fleet{Namespace: "test", MaxTTL: 3 * time.Second}
	var addresses []*address
	for _, s := range servers {
		a := newAddress(t, s.Addr)
		addresses = append(addresses, a)
		fleet.Addresses = append(fleet.Addresses, a.Addr().String())
	}
	c := startCluster(t, 3, fleet)
	old := c.awaitLeader()
	mustPost(t, old.spec.API, "/v1/set-policy", `{"policy":{"prefix":"fast/","mode":"efficiency","ttl":"3s"},"now":true}`)
	awaitMode(t, old.spec.API, "fast/", engine.Efficiency)
	c.awaitApplied("fast/", engine.Efficiency)

	addresses[0].move(other.Addr)
	for _, m := range c.members {
		if m != old {
			m.kill()
			m.start()
			eventually(t, m.spec.ID+" runs", func() bool { return m.status() != nil && c.leader() != nil })
		}
	}
	require.NoError(t, old.command.Process.Signal(syscall.SIGSTOP))
	eventually(t, "another member leads", func() bool {
		for _, m := range c.members {
			if m == old {
				continue
			}
			if s := m.status(); s != nil && s["serves"] == true {
				return true
			}
		}
		return false
	})
	require.NoError(t, old.command.Process.Signal(syscall.SIGCONT))

	w := &movedFleet{t: t, cluster: c, last: map[int]float64{}}
	eventually(t, "the new server votes", func() bool { w.round(); return w.allVote() })
	for range 3 {
		w.round()
	}
	servers[1].Pause() // the vote of the new server is needed now
	defer servers[1].Resume()
	before := w.grants
	eventually(t, "locks are granted with the new server", func() bool { w.round(); return w.grants > before })
}

// round acquires each lock through every member, and then releases it.
func (w *movedFleet) round() {
	for lock := range 10 {
		var held []string
		var holder *member
		started := time.Now()
		for i := range w.cluster.members {
			m := w.cluster.members[(lock+i)%len(w.cluster.members)]
			code, l := post(w.t, m.spec.API, "/v1/acquire", fmt.Sprintf(`{"resource":"fast/%d"}`, lock))
			if code != http.StatusOK {
				continue
			}
			token := l["token"].(float64)
			require.Greater(w.t, token, w.last[lock], "lock %d through %s", lock, m.spec.ID)
			if time.Since(started) < time.Second { // otherwise the lease may have expired
				require.Nil(w.t, holder, "lock %d has two holders, with tokens %.0f and %.0f", lock, w.last[lock], token)
			}
			w.last[lock], holder = token, m
			held = append(held, leaseName(l))
			w.grants++
		}
		for _, l := range held {
			post(w.t, w.cluster.members[0].spec.API, "/v1/release", l)
		}
	}
}

// allVote reports whether the leader sees that all nodes vote.
func (w *movedFleet) allVote() bool {
	nodes, _ := mustPost(w.t, w.cluster.awaitLeader().spec.API, "/v1/get-fleet", `{}`)["nodes"].([]any)
	for _, n := range nodes {
		if n := n.(map[string]any); n["empty"] == true || n["error"] != nil || n["unnamed"] == true {
			return false
		}
	}
	return len(nodes) == 3
}

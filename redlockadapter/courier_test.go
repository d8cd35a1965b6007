package redlockadapter_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/redlockadapter"
)

// courier stands between a backend and a node. Once told to, it keeps the calls of
// one script, hangs up, and brings them to the node when it is told so.
type courier struct {
	addr string
	sha  []byte // of the script, as it is called
	keep atomic.Bool

	mu   sync.Mutex
	kept []func(t *testing.T)
}

// interpose puts a courier between a backend and each of some nodes of the fleet.
func (f *fleet) interpose(t *testing.T, script string, nodes ...int) []*courier {
	t.Helper()
	text, err := redlockadapter.Script(script)
	require.NoError(t, err)
	sum := sha1.Sum([]byte(text))
	var couriers []*courier
	for _, i := range nodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		c := &courier{addr: l.Addr().String(), sha: []byte(hex.EncodeToString(sum[:]))}
		go c.accept(t, l, f.servers[i].Addr)
		f.config.Nodes[i] = &redis.Options{Addr: c.addr}
		couriers = append(couriers, c)
	}
	return couriers
}

func (c *courier) accept(t *testing.T, l net.Listener, to string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			client.Close()
			continue
		}
		t.Cleanup(func() { server.Close() })
		answers := make(chan struct{}, 1000) // one for each piece that the node has sent
		go func() {
			defer client.Close()
			buf := make([]byte, 1<<16)
			for {
				n, err := server.Read(buf)
				if err != nil {
					return
				}
				select {
				case answers <- struct{}{}:
				default:
				}
				_, _ = client.Write(buf[:n]) // if that was hung up the node answers all the same
			}
		}()
		go c.carry(client, server, answers)
	}
}

// carry takes what the backend sends to the node. The connection to the node
// outlives the backend's.
func (c *courier) carry(client, server net.Conn, answers chan struct{}) {
	buf := make([]byte, 1<<16)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if !c.keep.Load() || !bytes.Contains(buf[:n], append([]byte("evalsha\r\n$40\r\n"), c.sha...)) {
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
			continue
		}
		text := bytes.Clone(buf[:n])
		c.mu.Lock()
		c.kept = append(c.kept, func(t *testing.T) {
			for len(answers) > 0 {
				<-answers // of what came before
			}
			_, err := server.Write(text)
			require.NoError(t, err)
			select {
			case <-answers:
			case <-patient(t).Done():
				t.Error("the node does not answer")
			}
		})
		c.mu.Unlock()
		client.Close()
		return
	}
}

// deliver brings what was kept, and returns when the node has carried it out. It
// reports how much it was.
func (c *courier) deliver(t *testing.T) int {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, bring := range c.kept {
		bring(t)
	}
	n := len(c.kept)
	c.kept = nil
	return n
}

// lockOn is what a node has of a lock.
func (f *fleet) lockOn(t *testing.T, node int, resource string) string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: f.servers[node].Addr})
	defer c.Close()
	lock, err := c.HGet(patient(t), hashOf(t, c), ":"+resource).Result()
	require.NoError(t, err)
	return lock
}

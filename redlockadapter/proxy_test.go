package redlockadapter_test

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// proxy stands between a backend and a node. It can keep the calls of one
// script, close the backend's connection, and deliver them later.
type proxy struct {
	sha  []byte // of the script
	keep atomic.Bool
	// swallow passes calls of the script on, but closes the connection instead of
	// passing their replies back.
	swallow atomic.Bool
	passed  atomic.Int64 // calls of the script that reached the node

	mu   sync.Mutex
	kept []func(t *testing.T)
}

// interpose puts a proxy in front of some nodes for the backends that are made
// from now on. The nodes keep their names.
func (f *fleet) interpose(t *testing.T, script string, nodes ...int) []*proxy {
	t.Helper()
	var proxies []*proxy
	for _, i := range nodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		c := &proxy{sha: []byte(scriptSHA(script))}
		go c.accept(t, l, f.servers[i].Addr)
		f.config.Nodes[i] = &redis.Options{Addr: f.servers[i].Addr, Dialer: dialer(l.Addr().String())}
		proxies = append(proxies, c)
	}
	return proxies
}

func (c *proxy) accept(t *testing.T, l net.Listener, to string) {
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
		answers := make(chan struct{}, 1<<10) // one for each read of the node's replies
		var hangUp atomic.Bool
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
				if hangUp.Load() {
					client.Close()
					continue
				}
				_, _ = client.Write(buf[:n]) // the node answers even if nobody listens
			}
		}()
		go c.carry(client, server, answers, &hangUp)
	}
}

// carry passes what the backend sends. The connection to the node outlives the
// backend's.
func (c *proxy) carry(client, server net.Conn, answers chan struct{}, hangUp *atomic.Bool) {
	buf := make([]byte, 1<<16)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		calls := bytes.Count(buf[:n], c.sha)
		if calls == 0 || !c.keep.Load() {
			if calls > 0 && c.swallow.Load() {
				hangUp.Store(true)
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
			c.passed.Add(int64(calls))
			continue
		}
		text := bytes.Clone(buf[:n])
		c.mu.Lock()
		c.kept = append(c.kept, func(t *testing.T) {
			for len(answers) > 0 {
				<-answers // of earlier requests
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

// deliver sends what was kept, returns when the node has carried it out, and
// reports how much it was.
func (c *proxy) deliver(t *testing.T) int {
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

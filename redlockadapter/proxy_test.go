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

// proxy forwards the connections of a Backend to a node. It can hold the calls of one
// script back, close the Backend's connection, and deliver them later.
type proxy struct {
	sha  []byte // of the script
	keep atomic.Bool
	// swallow forwards calls of the script, but closes the connection instead of
	// returning their replies.
	swallow atomic.Bool
	passed  atomic.Int64 // calls of the script that reached the node

	mu   sync.Mutex
	kept []func(t *testing.T)
}

// withProxies puts proxies in front of some nodes, for Backends that are created later.
// The nodes keep their addresses.
func (f *fleet) withProxies(t *testing.T, script string, nodes ...int) []*proxy {
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
				_, _ = client.Write(buf[:n]) // the Backend may have closed the connection
			}
		}()
		go c.forward(client, server, answers, &hangUp)
	}
}

// forward forwards the requests of the Backend. The connection to the node outlives the
// Backend's.
func (c *proxy) forward(client, server net.Conn, answers chan struct{}, hangUp *atomic.Bool) {
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
			case <-testContext(t).Done():
				t.Error("the node does not reply")
			}
		})
		c.mu.Unlock()
		client.Close()
		return
	}
}

// deliver sends the calls that were held back, and returns their number after the node
// has executed them.
func (c *proxy) deliver(t *testing.T) int {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, send := range c.kept {
		send(t)
	}
	n := len(c.kept)
	c.kept = nil
	return n
}

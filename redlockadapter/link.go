package redlockadapter

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// link is one network connection to a server, in one life of the server.
// go-redis makes it: it dials, encrypts and authenticates. From then on the
// connection type alone uses it, so that callers can write while another
// goroutine reads.
type link struct {
	client    *redis.Client
	conn      net.Conn
	reader    *bufio.Reader
	namespace string // begins the names of all keys
	prefix    string // begins the names of the keys of this life
}

// dial makes a link to a server that is fit to be a node.
func (n *node) dial() (*link, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*n.timeout)
	defer cancel()
	o := *n.options
	dial := o.Dialer
	if dial == nil {
		dial = redis.NewDialer(&o)
	}
	var mu sync.Mutex
	var last net.Conn
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		mu.Lock()
		defer mu.Unlock()
		last = conn
		return conn, err
	}
	theirs, life := o.OnConnect, ""
	o.OnConnect = func(ctx context.Context, conn *redis.Conn) (err error) {
		if theirs != nil {
			if err := theirs(ctx, conn); err != nil {
				return err
			}
		}
		life, err = n.examine(ctx, conn)
		return err
	}
	k := &link{client: redis.NewClient(&o), namespace: n.namespace}
	if err := k.client.Conn().Ping(ctx).Err(); err != nil {
		_ = k.client.Close() // the error that matters is the other one
		return nil, fmt.Errorf("connect to %s: %w", n.addr, err)
	}
	mu.Lock()
	k.conn, k.prefix = last, n.namespace+life+":"
	mu.Unlock()
	if err := k.conn.SetDeadline(time.Time{}); err != nil { // go-redis has set one
		k.close()
		return nil, err
	}
	k.reader = bufio.NewReaderSize(k.conn, 1<<14)
	return k, nil
}

// examine looks at the server on a new connection, before anything else is sent
// on it, and returns its life.
func (n *node) examine(ctx context.Context, conn *redis.Conn) (life string, err error) {
	info, err := conn.Info(ctx).Result()
	if err != nil {
		return "", fmt.Errorf("ask %s for INFO: %w", n.addr, err)
	}
	f := parseInfo(info)
	if err := f.check(n.addr); err != nil {
		return "", err
	}
	if other := n.lives.claim(f.life(), n.addr); other != n.addr {
		return "", setupError(n.addr, "it is the same server as %s; a server has one vote", other)
	}
	pipe := conn.Pipeline()
	for _, s := range hotScripts {
		pipe.ScriptLoad(ctx, s.text)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return "", fmt.Errorf("load scripts on %s: %w", n.addr, err)
	}
	return f.life(), nil
}

// close ends the link. The reader gets an error.
func (k *link) close() {
	_ = k.conn.Close()
	_ = k.client.Close() // only its bookkeeping is left
}

// write sends commands. If that fails the link is closed, and the reader sees it.
func (k *link) write(commands []byte) {
	if _, err := k.conn.Write(commands); err != nil {
		_ = k.conn.Close()
	}
}

// lives knows which node of a Backend each server is, so that one server under
// two addresses has one vote.
type lives struct {
	mu    sync.Mutex
	owner map[string]string // life -> address
}

// claim returns the address that a life belongs to: the first that claimed it.
func (l *lives) claim(life, addr string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if owner, taken := l.owner[life]; taken {
		return owner
	}
	for other, owner := range l.owner {
		if owner == addr {
			delete(l.owner, other) // a former life
		}
	}
	l.owner[life] = addr
	return addr
}

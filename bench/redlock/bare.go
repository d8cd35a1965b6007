package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// bareDriver is the baseline: one pipelined script per node with a counter, and
// nothing else. Do not use it as a lock: it has no renewal, no waiting and no
// clean-up, and its tokens are not unique.
type bareDriver struct {
	nodes []*bareNode
	once  string
}

const (
	bareAcquire = `if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end return 0`
	bareRelease = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
)

func shaOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

func newBare(addrs []string) (*bareDriver, error) {
	d := &bareDriver{once: rand.Text()}
	for _, addr := range addrs {
		c := redis.NewClient(&redis.Options{Addr: addr})
		for _, script := range []string{bareAcquire, bareRelease} {
			if err := c.ScriptLoad(context.Background(), script).Err(); err != nil {
				return nil, err
			}
		}
		_ = c.Close()
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		n := &bareNode{conn: conn}
		go n.read()
		d.nodes = append(d.nodes, n)
	}
	return d, nil
}

// votes counts the replies to one request.
type votes struct {
	mu       sync.Mutex
	yes, all int
	need     int
	done     chan struct{}
}

func (v *votes) answered(yes bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all++
	if yes {
		if v.yes++; v.yes == v.need {
			close(v.done)
		}
	} else if v.all-v.yes == v.need {
		close(v.done)
	}
}

func (d *bareDriver) ask(sha string, args ...string) error {
	v := &votes{need: len(d.nodes)/2 + 1, done: make(chan struct{})}
	for _, n := range d.nodes {
		n.send(v, sha, args)
	}
	<-v.done
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.yes < v.need {
		return errors.New("no quorum")
	}
	return nil
}

func (d *bareDriver) pair(_ context.Context, name string, inside func(uint64)) error {
	if err := d.ask(shaOfAcquire, "2", "bare:"+name, "barectr:"+name, d.once, "10000"); err != nil {
		return err
	}
	if inside != nil {
		inside(0)
	}
	return d.ask(shaOfRelease, "1", "bare:"+name, d.once)
}

var shaOfAcquire, shaOfRelease = shaOf(bareAcquire), shaOf(bareRelease)

func (d *bareDriver) close() {
	for _, n := range d.nodes {
		_ = n.conn.Close()
	}
}

// bareNode is one connection. A request on an idle connection is written immediately.
// Requests that arrive while replies are pending share the next write.
type bareNode struct {
	conn net.Conn

	mu      sync.Mutex
	busy    bool
	pending []byte
	waiting []*votes // of pending
	sent    []*votes
}

func (n *bareNode) send(v *votes, sha string, args []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.pending
	b = fmt.Appendf(b, "*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n", 2+len(args), sha)
	for _, a := range args {
		b = append(b, '$')
		b = strconv.AppendInt(b, int64(len(a)), 10)
		b = append(b, "\r\n"...)
		b = append(b, a...)
		b = append(b, "\r\n"...)
	}
	n.pending, n.waiting = b, append(n.waiting, v)
	if !n.busy {
		n.flush()
	}
}

// flush writes the pending requests. The caller holds mu.
func (n *bareNode) flush() {
	n.busy = len(n.waiting) > 0
	if n.busy {
		_, _ = n.conn.Write(n.pending) // read reports a broken connection
		n.sent, n.waiting = n.waiting, n.sent[:0]
		n.pending = n.pending[:0]
	}
}

func (n *bareNode) read() {
	r := bufio.NewReaderSize(n.conn, 1<<16)
	for {
		n.mu.Lock()
		count := len(n.sent)
		n.mu.Unlock()
		for i := 0; i < max(1, count); i++ {
			line, err := r.ReadSlice('\n')
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					fmt.Println("bare:", err)
				}
				return
			}
			n.mu.Lock()
			v := n.sent[i]
			count = len(n.sent)
			n.mu.Unlock()
			v.answered(line[0] == ':' && line[1] != '0')
		}
		n.mu.Lock()
		n.flush()
		if !n.busy {
			n.sent = n.sent[:0]
		}
		n.mu.Unlock()
	}
}

package peers

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/leased-project/leased/internal/load"
)

// The scripts of the baseline.
const (
	bareAcquire = `if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
	return redis.call('INCR', KEYS[2])
end
return 0`
	bareRelease = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
)

var bareAcquireSum, bareReleaseSum = sumOf(bareAcquire), sumOf(bareRelease)

func sumOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// newBare opens a baseline, the least that a lock on a majority of Redis nodes can cost: one
// pipelined script per node with a counter, and nothing else. Do not use it as a lock: it has no
// renewal, no waiting and no clean-up, and its tokens are not unique.
func newBare(addresses []string) load.Target {
	return func(ctx context.Context) (load.Client, error) {
		c := &bareClient{owner: rand.Text()}
		for _, client := range dialRedis(addresses) {
			for _, script := range []string{bareAcquire, bareRelease} {
				if err := client.ScriptLoad(ctx, script).Err(); err != nil {
					return nil, errors.Join(err, c.Close(ctx))
				}
			}
			_ = client.Close()
		}
		for _, address := range addresses {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				return nil, errors.Join(err, c.Close(ctx))
			}
			n := &bareNode{conn: conn}
			go n.read()
			c.nodes = append(c.nodes, n)
		}
		return c, nil
	}
}

type bareClient struct {
	nodes []*bareNode
	owner string
}

// Acquire implements [load.Client], without waiting.
func (c *bareClient) Acquire(_ context.Context, name string) (load.Held, error) {
	if err := c.ask(bareAcquireSum, "2", "bare:"+name, "barectr:"+name, c.owner, "10000"); err != nil {
		return load.Held{}, err
	}
	release := func(context.Context) error { return c.ask(bareReleaseSum, "1", "bare:"+name, c.owner) }
	return load.Held{Release: release}, nil
}

// Close implements [load.Client].
func (c *bareClient) Close(context.Context) error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.conn.Close())
	}
	return errors.Join(errs...)
}

// ask sends a script to all nodes, and waits for a majority.
func (c *bareClient) ask(sum string, args ...string) error {
	v := &bareVotes{need: len(c.nodes)/2 + 1, done: make(chan struct{})}
	for _, n := range c.nodes {
		n.send(v, sum, args)
	}
	<-v.done
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.yes < v.need {
		return errors.New("no majority of the Redis nodes accepted the request")
	}
	return nil
}

// bareVotes counts the replies to one request.
type bareVotes struct {
	mu       sync.Mutex
	yes, all int
	need     int
	done     chan struct{}
}

func (v *bareVotes) answered(yes bool) {
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

// bareNode is one connection. A request on an idle connection is written immediately.
// Requests that arrive while replies are pending share the next write.
type bareNode struct {
	conn net.Conn

	mu      sync.Mutex
	busy    bool
	pending []byte
	waiting []*bareVotes // of pending
	sent    []*bareVotes
}

func (n *bareNode) send(v *bareVotes, sum string, args []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.pending
	b = fmt.Appendf(b, "*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n", 2+len(args), sum)
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
		_, _ = n.conn.Write(n.pending) // read ends with a broken connection
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

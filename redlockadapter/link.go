package redlockadapter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// link is the connection of a lane. go-redis makes it: it dials, encrypts,
// authenticates and has the server looked at. From then on only the lane speaks
// on it, so that a question can be written by whoever asks it and the answer read
// by whoever waits for it.
type link struct {
	client *redis.Client
	conn   net.Conn
	reader *bufio.Reader
	node   string // the name of the node's hash, as it is sent

	// Room that exchanges use one after the other. Whoever has made the lane busy
	// uses it; commands only the lane's goroutine, since a write may still look at
	// them when the answer is there.
	batch    []*op
	calls    []call
	commands []byte
}

// dialLink makes a connection that the server has been admitted on.
func (n *node) dialLink(timeout time.Duration) (*link, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*timeout)
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
	o.PoolSize, o.MaxConcurrentDials = 1, 1
	k := &link{commands: make([]byte, 0, 1<<12)}
	o.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
		runID, err := n.connected(ctx, conn, n.maxTTL)
		k.node = newArgs(n.keys.of(runID)).text
		return err
	}
	k.client = redis.NewClient(&o)
	if err := k.client.Conn().Ping(ctx).Err(); err != nil {
		_ = k.client.Close() // the error that matters is the other one
		return nil, err
	}
	mu.Lock()
	k.conn = last
	mu.Unlock()
	if err := k.conn.SetDeadline(time.Time{}); err != nil { // go-redis has set one
		k.close()
		return nil, err
	}
	k.reader = bufio.NewReaderSize(k.conn, 1<<14)
	return k, nil
}

// close ends the connection. Who reads from it gets an error.
func (k *link) close() {
	_ = k.conn.Close()
	_ = k.client.Close() // the connection is closed; only its books are left
}

// write sends commands. If that fails the connection is closed, and the reader
// tells.
func (k *link) write(commands []byte) {
	if _, err := k.conn.Write(commands); err != nil {
		_ = k.conn.Close()
	}
}

// refusal is an error that a server answers.
type refusal string

// Error is what the server said.
func (r refusal) Error() string { return string(r) }

// ends reports whether the server is none that votes, and must be looked at
// again: it has become a replica, or loads its data.
func (r refusal) ends() bool {
	word, _, _ := strings.Cut(string(r), " ")
	return word == "READONLY" || word == "LOADING" || word == "MASTERDOWN"
}

var errProtocol = errors.New("answer is not what Redis says")

// read waits for the next answer: a text, or a refusal. Any other error is the
// end of the connection.
func (k *link) read() (string, error) {
	line, err := k.reader.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	if len(line) < 3 {
		return "", errProtocol
	}
	rest := line[1 : len(line)-2]
	switch line[0] {
	case '-':
		return "", refusal(rest)
	case ':':
		return string(rest), nil
	case '$':
		size, err := strconv.Atoi(string(rest))
		if err != nil || size < 0 || size > 1<<24 {
			return "", fmt.Errorf("%w: %q", errProtocol, line)
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(k.reader, text); err != nil {
			return "", err
		}
		return string(text[:size]), nil
	}
	return "", fmt.Errorf("%w: %q", errProtocol, line)
}

// appendArg appends one argument of a command as Redis wants it.
func appendArg(b []byte, arg string) []byte {
	b = append(b, '$')
	b = strconv.AppendInt(b, int64(len(arg)), 10)
	b = append(b, "\r\n"...)
	b = append(b, arg...)
	return append(b, "\r\n"...)
}

// appendCount appends how many arguments follow.
func appendCount(b []byte, n int) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, "\r\n"...)
}

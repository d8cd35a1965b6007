package redisconn

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// socket is one network connection to a server, in one life of the server. go-redis
// dials, encrypts and authenticates. From then on Conn alone uses the connection, so
// that callers can write while another goroutine reads.
type socket struct {
	client     *redis.Client
	conn       net.Conn
	reader     *bufio.Reader
	life       string
	prefix     string // begins the names of all keys
	lifePrefix string // begins the names of the keys of this life
}

// dial connects to a server and checks that it may be a node.
func dial(config Config, options *redis.Options) (*socket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*config.Timeout)
	defer cancel()
	o := *options
	dialer := o.Dialer
	if dialer == nil {
		dialer = redis.NewDialer(&o)
	}
	var mu sync.Mutex
	var last net.Conn
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer(ctx, network, addr)
		mu.Lock()
		defer mu.Unlock()
		last = conn
		return conn, err
	}
	onConnect, life := o.OnConnect, ""
	o.OnConnect = func(ctx context.Context, conn *redis.Conn) (err error) {
		if onConnect != nil {
			if err := onConnect(ctx, conn); err != nil {
				return err
			}
		}
		life, err = handshake(ctx, conn, config)
		return err
	}
	s := &socket{client: redis.NewClient(&o), prefix: config.Prefix}
	if err := s.client.Conn().Ping(ctx).Err(); err != nil {
		_ = s.client.Close() // the first error counts
		return nil, fmt.Errorf("connect to %s: %w", o.Addr, err)
	}
	mu.Lock()
	s.conn, s.life, s.lifePrefix = last, life, config.Prefix+life+":"
	mu.Unlock()
	if err := s.conn.SetDeadline(time.Time{}); err != nil { // go-redis set one
		s.close()
		return nil, err
	}
	s.reader = bufio.NewReaderSize(s.conn, 1<<14)
	return s, nil
}

// handshake identifies the server before anything else is sent on a new connection,
// loads the scripts, and returns the server's life.
func handshake(ctx context.Context, conn *redis.Conn, config Config) (life string, err error) {
	addr := config.Options.Addr
	text, err := conn.Info(ctx).Result()
	if err != nil {
		return "", fmt.Errorf("ask %s for INFO: %w", addr, err)
	}
	info := parseInfo(text)
	if err := info.check(addr); err != nil {
		return "", err
	}
	if other := config.Servers.claim(info.life(), addr); other != addr {
		return "", SetupError(addr, "it is the same server as %s; a server has one vote", other)
	}
	pipe := conn.Pipeline()
	for _, s := range config.Preload {
		pipe.ScriptLoad(ctx, s.text)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return "", fmt.Errorf("load scripts on %s: %w", addr, err)
	}
	return info.life(), nil
}

// close ends the socket and frees the client of go-redis.
func (s *socket) close() {
	s.hangUp()
	_ = s.client.Close() // its connection is closed already
}

// hangUp closes the network connection. The reader gets an error.
func (s *socket) hangUp() { _ = s.conn.Close() }

// write sends encoded commands. After a failure the reader gets an error.
func (s *socket) write(commands []byte) {
	if _, err := s.conn.Write(commands); err != nil {
		s.hangUp()
	}
}

package redisconn

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease/engine"
)

// socket is one network connection to one run of a server. go-redis
// dials, encrypts and authenticates. From then on Conn alone uses the connection, so
// that callers can write while another goroutine reads.
type socket struct {
	client     *redis.Client
	conn       net.Conn
	reader     *bufio.Reader
	server     string         // the run of the server
	checked    engine.Instant // when the address was last known to lead to this server; guarded by Conn.mu
	prefix     string         // begins the names of all keys
	lifePrefix string         // begins the names of the keys of this life
}

// dial connects to a server and checks that it may be a node.
func dial(config Config, options *redis.Options) (*socket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*config.Timeout)
	defer cancel()
	began := config.Clock.Now()
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
	server := ""
	o.OnConnect = onConnect(o.OnConnect, config, &server, config.Preload)
	s := &socket{client: redis.NewClient(&o), checked: began, prefix: config.Prefix}
	if err := s.client.Conn().Ping(ctx).Err(); err != nil {
		_ = s.client.Close() // the first error counts
		return nil, fmt.Errorf("connect to %s: %w", o.Addr, err)
	}
	mu.Lock()
	s.conn, s.server, s.lifePrefix = last, server, config.Prefix+server+":"
	mu.Unlock()
	if err := s.conn.SetDeadline(time.Time{}); err != nil { // go-redis set one
		s.close()
		return nil, err
	}
	s.reader = bufio.NewReaderSize(s.conn, 1<<14)
	return s, nil
}

// probe returns the run of the server that the address leads to, after checking that it
// may be a node.
func probe(ctx context.Context, config Config, options *redis.Options) (server string, err error) {
	o := *options
	o.OnConnect = onConnect(o.OnConnect, config, &server, nil)
	client := redis.NewClient(&o)
	defer client.Close()
	if err := client.Conn().Ping(ctx).Err(); err != nil {
		return "", fmt.Errorf("connect to %s: %w", o.Addr, err)
	}
	return server, nil
}

// onConnect returns a hook that identifies the server before anything else is sent on a new
// connection, and loads scripts.
func onConnect(first func(context.Context, *redis.Conn) error, config Config, server *string, preload []*Script) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) (err error) {
		if first != nil {
			if err := first(ctx, conn); err != nil {
				return err
			}
		}
		if *server, err = identify(ctx, conn, config); err != nil || len(preload) == 0 {
			return err
		}
		pipe := conn.Pipeline()
		for _, s := range preload {
			pipe.ScriptLoad(ctx, s.text)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("load scripts on %s: %w", config.Options.Addr, err)
		}
		return nil
	}
}

// identify returns the run of a server, after checking that it may be a node.
func identify(ctx context.Context, conn *redis.Conn, config Config) (server string, err error) {
	addr := config.Options.Addr
	before := config.Clock.Now().Time()
	text, err := conn.Info(ctx).Result()
	if err != nil {
		return "", fmt.Errorf("ask %s for INFO: %w", addr, err)
	}
	info := parseInfo(text)
	if err := info.check(addr); err != nil {
		return "", err
	}
	if skew := info.skew(before, config.Clock.Now().Time()); skew.Abs() > config.MaxSkew {
		return "", SetupError(addr, "its clock is off by %v, more than MaxSkew (%v); synchronize it, or raise MaxSkew", skew, config.MaxSkew)
	}
	if other := config.Servers.claim(info.server(), addr); other != addr {
		return "", SetupError(addr, "it is the same server as %s; a server has one vote", other)
	}
	return info.server(), nil
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

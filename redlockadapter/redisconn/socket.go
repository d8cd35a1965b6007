package redisconn

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease/engine"
)

// socket is one network connection to one run of a server. Only one goroutine calls the server on it.
type socket struct {
	client     *redis.Client
	conn       *redis.Conn
	server     string                         // the run of the server
	checked    atomic.Pointer[engine.Instant] // when the address was last known to lead to this server; nil if it does not
	prefix     string                         // begins the names of all keys
	lifePrefix string                         // begins the names of the keys of this life
}

// dial connects to a server and checks that it may be a node.
func dial(config Config, options *redis.Options) (*socket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*config.Timeout)
	defer cancel()
	began := config.Clock.Now()
	o, server := *options, ""
	o.OnConnect = onConnect(o.OnConnect, config, &server, config.Preload)
	client := redis.NewClient(&o)
	s := &socket{client: client, conn: client.Conn(), prefix: config.Prefix}
	s.checked.Store(&began)
	if err := s.conn.Ping(ctx).Err(); err != nil {
		s.close()
		return nil, fmt.Errorf("connect to %s: %w", o.Addr, err)
	}
	s.server, s.lifePrefix = server, config.Prefix+server+":"
	return s, nil
}

// call sends requests as one pipeline, and returns a reply to each. err is why the connection cannot
// be used any more. A request without a reply may have been executed.
func (s *socket) call(batch []*Request, withText bool) (replies []Reply, err error) {
	ctx := context.Background() // the timeouts of the options apply
	pipe := s.conn.Pipeline()
	commands, replies := make([]*redis.Cmd, len(batch)), make([]Reply, len(batch))
	for i, r := range batch {
		commands[i] = redis.NewCmd(ctx, r.command(s, withText)...)
		_ = pipe.Process(ctx, commands[i]) // Exec sends it
	}
	_, failed := pipe.Exec(ctx)
	for i, command := range commands {
		replies[i] = replyOf(command.Result())
		refused, _ := replies[i].Err.(RedisError) //nolint:errorlint // replyOf returns it unwrapped
		switch {
		case replies[i].MaybeExecuted:
			err = failed
		case refused.Is(ErrNotPermitted): // the user may make other requests
			replies[i].MaybeExecuted = true
		case refused.endsConnection():
			replies[i].MaybeExecuted, err = true, refused
		}
	}
	return replies, err
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
func onConnect(first func(context.Context, *redis.Conn) error, config Config, server *string,
	preload []*Script) func(context.Context, *redis.Conn) error {
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
			pipe.ScriptLoad(ctx, s.text.(string))
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
		return "", SetupError(addr, "its clock is off by %v, more than MaxSkew (%v); synchronize it, or raise MaxSkew", skew,
			config.MaxSkew)
	}
	if other := config.Servers.claim(info.server(), addr); other != addr {
		return "", SetupError(addr, "it is the same server as %s; a server has one vote", other)
	}
	return info.server(), nil
}

// close ends the connection. A call that waits for replies fails.
func (s *socket) close() { _ = s.client.Close() } // it may be closed already

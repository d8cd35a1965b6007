package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote"
)

// Option changes what Dial does.
type Option func(*config) error

// config is what the options say.
type config struct {
	remote   []remote.Option
	lease    []lease.Option
	logger   *slog.Logger
	redis    func(address string) *redis.Options
	noRedis  bool
	insecure bool
}

// WithTLS encrypts the connections to the service. The configuration is used as it
// is. Connections to Redis have their own, see WithRedis.
func WithTLS(tls *tls.Config) Option {
	return func(c *config) error {
		c.remote = append(c.remote, remote.WithTLS(tls))
		return nil
	}
}

// WithSecret shows a secret of `leased user add` to the service. It is sent over
// TLS, or to a loopback address, and nowhere else.
func WithSecret(secret string) Option {
	return func(c *config) error {
		c.remote = append(c.remote, remote.WithSecret(secret))
		return nil
	}
}

// WithRedis sets how a Redis node is reached: user, password, TLS, dialer. The
// address is replaced by the one that the service names. A password is sent over
// TLS or to a loopback address only, see WithRedisInsecure. Default: no password
// and no TLS.
func WithRedis(options func(address string) *redis.Options) Option {
	return func(c *config) error {
		if options == nil {
			return fmt.Errorf("%w: the function of WithRedis is nil", engine.ErrInvalid)
		}
		c.redis = options
		return nil
	}
}

// WithRedisInsecure lets passwords of WithRedis go out in clear to other hosts.
func WithRedisInsecure() Option {
	return func(c *config) error {
		c.insecure = true
		return nil
	}
}

// WithoutRedis sends locks in efficiency mode through the service. The program then
// needs no connection to Redis.
func WithoutRedis() Option {
	return func(c *config) error {
		c.noRedis = true
		return nil
	}
}

// WithLogger sets where the client says how it reaches locks in efficiency mode.
// Default: slog.Default.
func WithLogger(logger *slog.Logger) Option {
	return func(c *config) error {
		if logger == nil {
			return fmt.Errorf("%w: the logger is nil", engine.ErrInvalid)
		}
		c.logger = logger
		return nil
	}
}

// WithLeaseOptions passes options to lease.New, such as lease.WithName and
// lease.WithHooks.
func WithLeaseOptions(options ...lease.Option) Option {
	return func(c *config) error {
		c.lease = append(c.lease, options...)
		return nil
	}
}

// WithRemoteOptions passes options to remote.New, such as remote.WithPatience.
func WithRemoteOptions(options ...remote.Option) Option {
	return func(c *config) error {
		c.remote = append(c.remote, options...)
		return nil
	}
}

// Dial returns a Client of the service whose members have their APIs at these
// addresses, as "10.0.0.1:7420". One is enough; more are asked when it is down. Dial
// returns when a member has told the policies and the Redis nodes were tried once.
// Close of the Client ends all connections.
func Dial(ctx context.Context, endpoints []string, options ...Option) (*lease.Client, error) {
	r, c, err := dial(ctx, endpoints, options)
	if err != nil {
		return nil, err
	}
	client, err := lease.New(r, append(c.lease, lease.WithOnClose(r.close))...)
	if err != nil {
		return nil, errors.Join(err, r.close(ctx))
	}
	return client, nil
}

// dial returns a router that has tried all its ways.
func dial(ctx context.Context, endpoints []string, options []Option) (*router, config, error) {
	c := config{logger: slog.Default(), redis: func(string) *redis.Options { return &redis.Options{} }}
	for _, option := range options {
		if err := option(&c); err != nil {
			return nil, c, err
		}
	}
	service, err := remote.New(endpoints, c.remote...)
	if err != nil {
		return nil, c, err
	}
	if err = service.AwaitTopology(ctx); err == nil {
		err = c.checkClear(service.Topology().Fleet)
	}
	if err != nil {
		return nil, c, errors.Join(fmt.Errorf("dial: %w", err), service.Close())
	}
	r := newRouter(service, c)
	r.redis.connect(ctx)
	r.start()
	return r, c, nil
}

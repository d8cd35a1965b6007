package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// Option configures Dial.
type Option func(*config)

// config is the result of the options.
type config struct {
	remote   remote.Config
	err      error // of an option without a value
	lease    []lease.Option
	logger   *slog.Logger
	redis    func(address string) *redis.Options
	noRedis  bool
	insecure bool
	timeout  time.Duration // of a request to a Redis node; tests set it
}

// WithTLS encrypts the connections to the service. The configuration is used unchanged.
// WithRedis sets the TLS configuration of connections to Redis.
func WithTLS(tls *tls.Config) Option {
	return checked(tls != nil, "the TLS configuration of WithTLS is nil", func(c *config) { c.remote.TLS = tls })
}

// WithSecret authenticates the program with a secret from `leased user add`. The secret
// is sent only over TLS or to a loopback address.
func WithSecret(secret string) Option {
	return checked(secret != "", "the secret of WithSecret is empty", func(c *config) { c.remote.Secret = secret })
}

// WithRedis sets the connection options of a Redis node: user, password, TLS, dialer. The
// service sets the address. A password is sent only over TLS or to a loopback address, see
// WithRedisInsecure. By default there is no password and no TLS.
func WithRedis(options func(address string) *redis.Options) Option {
	return checked(options != nil, "the function of WithRedis is nil", func(c *config) { c.redis = options })
}

// WithRedisInsecure allows passwords of WithRedis to be sent in clear text to other
// hosts.
func WithRedisInsecure() Option {
	return func(c *config) { c.insecure = true }
}

// WithoutRedis sends requests for locks in efficiency mode through the service, so the
// program needs no connection to Redis.
func WithoutRedis() Option {
	return func(c *config) { c.noRedis = true }
}

// WithLogger sets the logger for changes between direct access to Redis and access
// through the service. The default is slog.Default.
func WithLogger(logger *slog.Logger) Option {
	return checked(logger != nil, "the logger of WithLogger is nil", func(c *config) { c.logger = logger })
}

// WithLeaseOptions passes options to lease.New, such as lease.WithName and
// lease.WithHooks.
func WithLeaseOptions(options ...lease.Option) Option {
	return func(c *config) { c.lease = append(c.lease, options...) }
}

// WithTimeout bounds how long one call looks for a member that can serve it. The default is
// 5 s, longer than a few leader elections.
func WithTimeout(timeout time.Duration) Option {
	return checked(timeout > 0, "the timeout of WithTimeout is not above 0",
		func(c *config) { c.remote.Timeout = timeout })
}

// checked returns an option that makes Dial fail unless its value is ok.
func checked(ok bool, otherwise string, set Option) Option {
	if ok {
		return set
	}
	return func(c *config) { c.err = fmt.Errorf("%w: %s", engine.ErrInvalid, otherwise) }
}

// Dial returns a Client for the service whose members have these API addresses, such as
// "10.0.0.1:7420". One address is enough; with more, the Client tolerates members that are
// down. Dial returns after a member has sent the policies and the first attempt to connect
// to the Redis nodes has ended. Close of the Client closes all connections.
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

// dial returns a router that knows the topology and has tried to connect to Redis.
func dial(ctx context.Context, endpoints []string, options []Option) (*router, config, error) {
	c := config{logger: slog.Default(), redis: func(string) *redis.Options { return &redis.Options{} }}
	for _, option := range options {
		option(&c)
	}
	if c.err != nil {
		return nil, c, c.err
	}
	service, err := remote.New(endpoints, c.remote)
	if err != nil {
		return nil, c, err
	}
	if err = service.AwaitTopology(ctx); err == nil {
		err = c.checkOptions(service.Topology().Fleet)
	}
	if err != nil {
		return nil, c, errors.Join(fmt.Errorf("dial: %w", err), service.Close())
	}
	r := &router{Backend: service, redis: newRedisLocks(service, c)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.redis.connect(ctx)
	r.running.Go(r.follow)
	return r, c, nil
}

package main

import (
	"context"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/lease"
)

// dial connects a client to the service, and to the Redis nodes that the service names.
func (a *access) dial(ctx context.Context, redis *redisFlags, options ...client.Option) (*lease.Client, error) {
	addresses, err := a.endpoints()
	if err != nil {
		return nil, err
	}
	config, err := a.tls()
	if err != nil {
		return nil, err
	}
	own, err := a.secret()
	if err != nil {
		return nil, err
	}
	nodes, err := redis.access()
	if err != nil {
		return nil, err
	}
	options = append(options, client.WithRedis(nodes.Options))
	if nodes.Insecure {
		options = append(options, client.WithRedisInsecure())
	}
	if config != nil {
		options = append(options, client.WithTLS(config))
	}
	if own != "" {
		options = append(options, client.WithSecret(own))
	}
	return client.Dial(ctx, addresses, options...)
}

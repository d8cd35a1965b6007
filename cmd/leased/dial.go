package main

import (
	"context"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote"
)

// dial connects a client to the service, and to the Redis nodes that the service names.
func (a *access) dial(ctx context.Context, redis *redisFlags, options ...client.Option) (*lease.Client, error) {
	addresses, service, err := a.remote()
	if err != nil {
		return nil, err
	}
	nodes, err := redis.access()
	if err != nil {
		return nil, err
	}
	options = append(options, client.WithRemoteOptions(service...), client.WithRedis(nodes.Options))
	if nodes.Insecure {
		options = append(options, client.WithRedisInsecure())
	}
	return client.Dial(ctx, addresses, options...)
}

// remote returns the addresses of the service, and the options to connect to it.
func (a *access) remote() (addresses []string, options []remote.Option, err error) {
	if addresses, err = a.endpoints(); err != nil {
		return nil, nil, err
	}
	config, err := a.tls()
	if err != nil {
		return nil, nil, err
	}
	own, err := a.secret()
	if err != nil {
		return nil, nil, err
	}
	if config != nil {
		options = append(options, remote.WithTLS(config))
	}
	if own != "" {
		options = append(options, remote.WithSecret(own))
	}
	return addresses, options, nil
}

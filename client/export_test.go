package client

import (
	"context"

	"github.com/leased-project/leased/lease/engine"
)

// DialBackend is Dial without the lease.Client, for the conformance suite.
func DialBackend(ctx context.Context, endpoints []string, options ...Option) (engine.Backend, func(context.Context) error, error) {
	r, _, err := dial(ctx, endpoints, options)
	if err != nil {
		return nil, nil, err
	}
	return r, r.close, nil
}

package client

import (
	"context"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// WithNodeTimeout bounds one request to one Redis node, for tests on a busy machine.
func WithNodeTimeout(timeout time.Duration) Option { return func(c *config) { c.timeout = timeout } }

// DialBackend is Dial without the lease.Client, for the conformance suite. Calls have a minute, so
// that a busy machine makes none of them uncertain.
func DialBackend(ctx context.Context, endpoints []string, options ...Option) (engine.Backend,
	func(context.Context) error, error) {
	options = append(options, WithTimeout(time.Minute))
	r, _, err := dial(ctx, endpoints, options)
	if err != nil {
		return nil, nil, err
	}
	return r, r.close, nil
}

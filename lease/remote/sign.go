package remote

import (
	"context"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

var (
	_ engine.Signer = (*Backend)(nil)
	_ engine.Signer = (*Efficiency)(nil)
)

// Sign returns the signed token of a lease that the caller holds.
func (c *connector) Sign(ctx context.Context, resource fencing.Resource,
	token fencing.Token) (signed engine.SignedToken, err error) {
	err = c.do(ctx, func(conn *connection) error {
		return conn.unary(ctx, func(ctx context.Context) error {
			response, err := conn.leases.Sign(ctx, &pb.SignRequest{Resource: string(resource), Token: uint64(token)})
			if err != nil {
				return err
			}
			signed.Text = response.SignedToken
			signed.TTL, err = wire.ParseDuration("ttl", response.Ttl)
			return err
		})
	})
	return signed, err
}

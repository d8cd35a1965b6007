package remote

import (
	"context"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

var _ engine.RefusalReporter = (*Backend)(nil)

// ReportRefusal adds a refused write to the history of its lock, which the leader has.
func (b *Backend) ReportRefusal(ctx context.Context, refusal engine.Refusal) error {
	return b.do(ctx, func(conn *connection) error {
		return conn.unary(ctx, func(ctx context.Context) error {
			_, err := conn.leases.ReportRefusal(ctx, &pb.ReportRefusalRequest{
				Resource: string(refusal.Resource), Token: uint64(refusal.Token), Mark: uint64(refusal.Mark),
				Gate: refusal.Gate, Reason: refusal.Reason, Holder: refusal.Holder})
			return err
		})
	})
}

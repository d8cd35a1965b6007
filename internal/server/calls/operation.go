package calls

import (
	"context"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/tracing"
)

// The rows of the operations of a session stream.
var (
	inSession    = table[pb.LeaseService_Session_FullMethodName]
	acquire      = table[pb.LeaseService_Acquire_FullMethodName]
	renew        = table[pb.LeaseService_Renew_FullMethodName]
	release      = table[pb.LeaseService_Release_FullMethodName]
	openSession  = table[pb.LeaseService_OpenSession_FullMethodName]
	closeSession = table[pb.LeaseService_CloseSession_FullMethodName]
)

// of returns the row and the request of an operation.
func of(op *pb.Operation) (*Method, any) {
	switch call := op.Call.(type) {
	case *pb.Operation_Acquire:
		return acquire, call.Acquire
	case *pb.Operation_Renew:
		return renew, call.Renew
	case *pb.Operation_Update:
		return renew, call.Update
	case *pb.Operation_Release:
		return release, call.Release
	case *pb.Operation_Open:
		return openSession, call.Open
	case *pb.Operation_Close:
		return closeSession, call.Close
	}
	return inSession, nil
}

// Admit checks the size of an operation and the rights of its user, and counts it against
// the limits.
func (c *Chain) Admit(ctx context.Context, account *limits.Account, op *pb.Operation) error {
	m, request := of(op)
	if err := c.Limits.CheckOperation(op); err != nil {
		return err
	}
	if err := m.rate(account); err != nil {
		return err
	}
	return m.check(ctx, request)
}

// Trace starts the span of an operation. It returns nil if the operation is not traced.
func (c *Chain) Trace(ctx context.Context, op *pb.Operation) *tracing.Call {
	m, request := of(op)
	return c.trace(ctx, m, op.Traceparent, request)
}

// Answered records the outcome of an operation: a grant, or a refusal.
func (c *Chain) Answered(ctx context.Context, op *pb.Operation, answer *pb.Answer, err error) {
	m, request := of(op)
	switch {
	case err != nil:
		c.Audit.Refused(ctx, inSession.name+" ("+m.name+")", err)
	case m.event != "" && c.Audit.Enabled(ctx):
		c.Audit.Write(ctx, m.record(request, answer))
	}
}

package audit

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore/machine"
)

// UnaryRefusals is the outermost interceptor of unary gRPC calls. It notes the caller
// for later records, and records refusals.
func (l *Log) UnaryRefusals(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx = WithCaller(ctx, fromGRPC(ctx))
	response, err := handler(ctx, request)
	l.Refused(ctx, info.FullMethod, err)
	return response, err
}

// StreamRefusals does the same for gRPC streams.
func (l *Log) StreamRefusals(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := WithCaller(stream.Context(), fromGRPC(stream.Context()))
	err := handler(server, &callerStream{ServerStream: stream, ctx: ctx})
	l.Refused(ctx, info.FullMethod, err)
	return err
}

// callerStream is a stream whose context carries its caller.
type callerStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context carries the caller.
func (s *callerStream) Context() context.Context { return s.ctx }

// Refused records the error of a call if it refuses the caller, and nothing
// otherwise.
func (l *Log) Refused(ctx context.Context, method string, err error) {
	if err == nil {
		return
	}
	code := wire.KindOf(err).Code
	if event := Event(code); event.isRefusal() {
		l.Write(ctx, Record{Event: event, Method: method, Code: code, Detail: err.Error()})
	}
}

// UnaryEvents is the innermost interceptor of unary calls, by gRPC and by HTTP. It
// records what they changed.
func (l *Log) UnaryEvents(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, request)
	if r, ok := recordOf(request, response, err == nil); ok {
		l.Outcome(ctx, r, err)
	}
	return response, err
}

// StreamEvents is the innermost interceptor of gRPC streams.
func (l *Log) StreamEvents(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	err := handler(server, stream)
	l.Stream(stream.Context(), info.FullMethod, err)
	return err
}

// Stream records the end of a snapshot stream. The operations of a session stream
// have records of their own.
func (l *Log) Stream(ctx context.Context, method string, err error) {
	switch method {
	case pb.ClusterService_SaveSnapshot_FullMethodName:
		l.Outcome(ctx, Record{Event: SnapshotSave}, err)
	case pb.ClusterService_RestoreSnapshot_FullMethodName:
		l.Outcome(ctx, Record{Event: SnapshotRestore}, err)
	}
}

// Outcome records an event of an operator with the error of the call. A failed call is
// recorded as well, because it may have taken effect. A refused call has a line of its
// own, and a call to a follower is recorded by the leader: Outcome leaves out both.
func (l *Log) Outcome(ctx context.Context, r Record, err error) {
	if err != nil {
		r.Code = wire.KindOf(err).Code
		if Event(r.Code).isRefusal() || r.Code == wire.CodeNotLeader {
			return
		}
		r.Detail = err.Error()
	}
	l.Write(ctx, r)
}

// recordOf returns the record of a unary call, and whether it has one: calls of
// clients only if they succeeded, calls of operators in any case.
func recordOf(request, response any, succeeded bool) (Record, bool) {
	switch r := request.(type) {
	case *pb.AcquireRequest:
		granted, _ := response.(*pb.AcquireResponse)
		return Record{Event: Grant, Holder: r.Holder, Resources: granted.GetResources(), Token: granted.GetToken(), Mode: granted.GetMode()}, succeeded
	case *pb.SignRequest:
		return Record{Event: Sign, Resources: []string{r.Resource}, Token: r.Token}, succeeded
	case *pb.BreakRequest:
		return Record{Event: Break, Resources: []string{r.Resource}, Token: r.Token}, true
	case *pb.SetPolicyRequest:
		return Record{Event: PolicySet, Subject: r.Policy.GetPrefix() + "*", Mode: r.Policy.GetMode(), Detail: policyText(r.Policy, r.Now)}, true
	case *pb.DeletePolicyRequest:
		return Record{Event: PolicyDelete, Subject: r.Prefix + "*"}, true
	case *pb.AbortMigrationRequest:
		return Record{Event: MigrationAbort, Subject: r.Prefix + "*"}, true
	}
	return clusterRecord(request)
}

// clusterRecord is recordOf for calls that change the fleet or the members.
func clusterRecord(request any) (Record, bool) {
	switch r := request.(type) {
	case *pb.SetFleetRequest:
		return Record{Event: FleetSet, Subject: strings.Join(r.Fleet.GetAddresses(), ",")}, true
	case *pb.ProvideFloorRequest:
		return Record{Event: FloorSet, Token: r.Floor}, true
	case *pb.AddLearnerRequest:
		return Record{Event: MemberAdd, Subject: r.Id, Detail: "raft " + r.RaftAddress + ", api " + r.ApiAddress}, true
	case *pb.PromoteRequest:
		return Record{Event: MemberPromote, Subject: r.Id}, true
	case *pb.AnnounceRequest:
		return Record{Event: MemberAnnounce, Subject: r.Id, Detail: "api " + r.ApiAddress}, true
	case *pb.JoinRequest:
		return Record{Event: MemberJoin, Detail: "through " + r.Address}, true
	case *pb.RemoveRequest:
		return Record{Event: MemberRemove, Subject: r.Id}, true
	case *pb.TransferRequest:
		return Record{Event: LeaderTransfer, Subject: r.To}, true
	}
	return Record{}, false
}

// policyText returns the timings of a policy that are not defaults.
func policyText(p *pb.Policy, now bool) string {
	var parts []string
	for _, field := range []struct{ name, value string }{{"ttl", p.GetTtl()}, {"renew", p.GetRenew()}, {"drift", p.GetDrift()}, {"lock-delay", p.GetLockDelay()}} {
		if field.value != "" {
			parts = append(parts, field.name+" "+field.value)
		}
	}
	if now {
		parts = append(parts, "without waiting for leases")
	}
	return strings.Join(parts, ", ")
}

// Operation records an operation of a session stream: a grant, or a refusal.
func (l *Log) Operation(ctx context.Context, op *pb.Operation, answer *pb.Answer, err error) {
	call, ok := op.Call.(*pb.Operation_Acquire)
	switch {
	case err != nil:
		l.Refused(ctx, fmt.Sprintf("%s (%T)", pb.LeaseService_Session_FullMethodName, op.Call), err)
	case ok:
		l.Write(ctx, Record{Event: Grant, Holder: call.Acquire.Holder, Resources: call.Acquire.Resources, Token: answer.Token, Mode: answer.Mode})
	}
}

// Expired records a lease that was lost because its session was not renewed. Every
// member sees the event; the leader records it.
func (l *Log) Expired(e *machine.Event) {
	r := Record{Event: Expire, User: e.User, Holder: e.Holder, Token: uint64(e.Token), Mode: wire.ModeText(e.Mode), Resources: names(e.Resources)}
	l.Write(context.Background(), r)
}

func names(resources []fencing.Resource) []string {
	list := make([]string, len(resources))
	for i, name := range resources {
		list[i] = strings.Clone(string(name))
	}
	return list
}

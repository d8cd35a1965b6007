package calls

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/lease/engine"
)

// The HTTP paths that are not gRPC methods and need a user.
const (
	MePath      = "/ui/me"   // the user of the dashboard
	LivePath    = "/ui/live" // the data of the dashboard
	UnknownPath = "/"        // every path that does not exist
)

// Method is a row of the table: what a call requires of its caller, how it counts, and what
// is recorded of it.
type Method struct {
	name string // the full name in gRPC, or an HTTP path
	// public calls need no user: supervisors and load balancers have no account.
	public bool
	// need returns the error of a user who may not make the call. Without one, no user may.
	need need
	rate rate
	span string // the name of its span in traces; calls without one are not traced
	// event is what the audit log records; calls without one are recorded only if they are
	// refused. describe adds what only this call has.
	event    audit.Event
	describe func(request any, r *audit.Record)
}

// rate is how a call counts against the requests per second of its user.
type rate func(*limits.Account) error

var (
	counted rate = (*limits.Account).Request
	// keeping is for calls that keep or end what a user has, or that come before them after a failover.
	keeping rate = (*limits.Account).Keep
	// uncounted is for the calls of process supervisors, which are not users.
	uncounted rate = func(*limits.Account) error { return nil }
)

// need checks the rights of the user of ctx. request is nil before it was read: need then
// checks what does not depend on it.
type need func(ctx context.Context, method string, request any) error

// table has all calls. Members and operators have different credentials: the secret of a
// member, which lies on every host, gives no right of an operator or a client.
var table = byName([]Method{
	{name: grpc_health_v1.Health_Check_FullMethodName, public: true, rate: uncounted},
	{name: grpc_health_v1.Health_Watch_FullMethodName, public: true},
	{name: grpc_health_v1.Health_List_FullMethodName, public: true},
	{name: pb.ClusterService_Health_FullMethodName, public: true, rate: uncounted},
	{name: metrics.Path, need: global(auth.Metrics)},
	{name: MePath, need: anyUser},
	{name: LivePath, need: anyUser},
	{name: UnknownPath, need: anyUser},

	{name: pb.LeaseService_Session_FullMethodName, need: anyUser, rate: keeping}, // and an attach on it
	{name: pb.LeaseService_OpenSession_FullMethodName, need: anyRight},
	{name: pb.LeaseService_CloseSession_FullMethodName, need: anyUser, rate: keeping},
	{name: pb.LeaseService_Acquire_FullMethodName, need: locks(auth.Acquire), span: tracing.Acquire, event: audit.Grant},
	{name: pb.LeaseService_Renew_FullMethodName, need: anyUser, rate: keeping},
	{name: pb.LeaseService_Release_FullMethodName, need: anyUser, rate: keeping, span: tracing.Release},
	{name: pb.LeaseService_Sign_FullMethodName, need: anyRight, event: audit.Sign},
	{name: pb.LeaseService_Break_FullMethodName, need: locks(auth.Break), event: audit.Break},
	{name: pb.LeaseService_Inspect_FullMethodName, need: locks(auth.Read)},
	{name: pb.LeaseService_History_FullMethodName, need: locks(auth.Read)},
	{name: pb.LeaseService_ReportRefusal_FullMethodName, need: locks(auth.Acquire)},
	{name: pb.LeaseService_Overview_FullMethodName, need: someLocks(auth.Read)},
	{name: pb.LeaseService_List_FullMethodName, need: someLocks(auth.Read)},
	{name: pb.LeaseService_Watch_FullMethodName, need: watched},
	{name: pb.LeaseService_WatchSession_FullMethodName, need: anyUser},

	{name: pb.PolicyService_ListPolicies_FullMethodName, need: anyRight},
	{name: pb.PolicyService_WatchTopology_FullMethodName, need: anyRight},
	{name: pb.PolicyService_SetPolicy_FullMethodName, need: policy, event: audit.PolicySet, describe: describePolicy},
	{name: pb.PolicyService_DeletePolicy_FullMethodName, need: policy,
		event: audit.PolicyDelete, describe: describePolicy},
	{name: pb.PolicyService_AbortMigration_FullMethodName, need: policy,
		event: audit.MigrationAbort, describe: describePolicy},

	{name: pb.RedisService_GetFleet_FullMethodName, need: global(auth.Cluster)},
	{name: pb.RedisService_SetFleet_FullMethodName, need: global(auth.Cluster), event: audit.FleetSet,
		describe: on(func(q *pb.SetFleetRequest, r *audit.Record) { r.Subject = strings.Join(q.Fleet.GetAddresses(), ",") })},
	{name: pb.RedisService_ProvideFloor_FullMethodName, need: global(auth.Cluster), event: audit.FloorSet,
		describe: on(func(q *pb.ProvideFloorRequest, r *audit.Record) { r.Token = q.Floor })},

	{name: pb.ClusterService_Status_FullMethodName, need: memberOrCluster}, // members that form a cluster call it
	{name: pb.ClusterService_ClusterStatus_FullMethodName, need: global(auth.Cluster)},
	{name: pb.ClusterService_Join_FullMethodName, need: global(auth.Cluster), event: audit.MemberJoin,
		describe: on(func(q *pb.JoinRequest, r *audit.Record) { r.Detail = "through " + q.Address })},
	{name: pb.ClusterService_Remove_FullMethodName, need: global(auth.Cluster),
		event: audit.MemberRemove, describe: describeMember},
	{name: pb.ClusterService_Transfer_FullMethodName, need: global(auth.Cluster), event: audit.LeaderTransfer,
		describe: on(func(q *pb.TransferRequest, r *audit.Record) { r.Subject = q.To })},
	{name: pb.ClusterService_SaveSnapshot_FullMethodName, need: global(auth.Cluster), event: audit.SnapshotSave},
	{name: pb.ClusterService_InspectSnapshot_FullMethodName, need: global(auth.Cluster)},
	{name: pb.ClusterService_RestoreSnapshot_FullMethodName, need: global(auth.Cluster), event: audit.SnapshotRestore},
	{name: pb.ClusterService_AddLearner_FullMethodName, need: auth.AllowMember,
		event: audit.MemberAdd, describe: describeMember},
	{name: pb.ClusterService_Promote_FullMethodName, need: auth.AllowMember,
		event: audit.MemberPromote, describe: describeMember},
	{name: pb.ClusterService_Announce_FullMethodName, need: auth.AllowMember,
		event: audit.MemberAnnounce, describe: describeMember},
})

func byName(rows []Method) map[string]*Method {
	all := map[string]*Method{}
	for i := range rows {
		m := &rows[i]
		if m.rate == nil {
			m.rate = counted
		}
		if m.need == nil && !m.public {
			m.need = nobody
		}
		all[m.name] = m
	}
	return all
}

// find returns the row of a method. No user may call a method without one.
func find(method string) *Method {
	if m, ok := table[method]; ok {
		return m
	}
	return &Method{name: method, need: nobody, rate: counted}
}

// check checks the rights of the user of ctx. request may be nil.
func (m *Method) check(ctx context.Context, request any) error {
	if m.public {
		return nil
	}
	return m.need(ctx, m.name, request)
}

func nobody(ctx context.Context, method string, _ any) error {
	if !auth.HasUser(ctx) {
		return nil
	}
	return fmt.Errorf("%w: %s has no need in the table of calls", engine.ErrForbidden, method)
}

// anyUser allows the call: the service checks rights and ownership for each operation.
func anyUser(context.Context, string, any) error { return nil }

func anyRight(ctx context.Context, method string, _ any) error { return auth.AllowAny(ctx, method) }

// global needs a right that is not on locks.
func global(right auth.Right) need {
	return func(ctx context.Context, method string, _ any) error { return auth.AllowGlobal(ctx, right, method) }
}

func memberOrCluster(ctx context.Context, method string, _ any) error {
	if auth.AllowMember(ctx, method, nil) == nil {
		return nil
	}
	return auth.AllowGlobal(ctx, auth.Cluster, method)
}

// ofRequest is a need that depends on nothing but the request.
func ofRequest(check func(ctx context.Context, request any) error) need {
	return func(ctx context.Context, _ string, request any) error {
		if request == nil {
			return nil
		}
		return check(ctx, request)
	}
}

// locks needs a right on each lock of the request.
func locks(right auth.Right) need {
	return ofRequest(func(ctx context.Context, request any) error {
		return auth.Allow(ctx, right, locksOf(request)...)
	})
}

// prefixed is a request for the locks with a prefix.
type prefixed interface{ GetPrefix() string }

// someLocks needs a right on some of the locks with the prefix of the request.
func someLocks(right auth.Right) need {
	return ofRequest(func(ctx context.Context, request any) error {
		return auth.AllowSome(ctx, right, request.(prefixed).GetPrefix())
	})
}

func watched(ctx context.Context, method string, request any) error {
	if r, ok := request.(*pb.WatchRequest); ok && r.Prefix != nil {
		return someLocks(auth.Read)(ctx, method, request)
	}
	return locks(auth.Read)(ctx, method, request)
}

// policy needs the right to change the policies of the whole prefix of the request.
var policy = ofRequest(func(ctx context.Context, request any) error {
	return auth.AllowPrefix(ctx, auth.Policy, policyPrefix(request))
})

func policyPrefix(request any) string {
	if set, ok := request.(*pb.SetPolicyRequest); ok {
		return set.Policy.GetPrefix()
	}
	return request.(prefixed).GetPrefix()
}

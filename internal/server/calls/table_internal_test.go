package calls

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/lease/engine"
)

// eachMethod calls f for every method of every service that the server offers.
func eachMethod(f func(name string, m protoreflect.MethodDescriptor)) {
	for _, file := range []protoreflect.FileDescriptor{pb.File_leased_v1_lease_proto, pb.File_leased_v1_admin_proto,
		grpc_health_v1.File_grpc_health_v1_health_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				f("/"+string(service.FullName())+"/"+string(m.Name()), m)
			}
		}
	}
}

// as returns the context of a call of a user.
func as(t *testing.T, user auth.User) context.Context {
	t.Helper()
	text := secret.New()
	user.Hashes = []secret.Hash{secret.HashOf(text)}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", secret.Header(text)))
	ctx, done, err := auth.NewUsers([]auth.User{user}).Authenticate(ctx)
	require.NoError(t, err)
	t.Cleanup(done)
	return ctx
}

func check(ctx context.Context, method string, request any) error {
	return find(method).check(ctx, request)
}

// open are the methods for every user: their operations check rights and ownership.
var open = []string{pb.LeaseService_Session_FullMethodName, pb.LeaseService_CloseSession_FullMethodName,
	pb.LeaseService_Renew_FullMethodName, pb.LeaseService_Release_FullMethodName,
	pb.LeaseService_WatchSession_FullMethodName}

// ofMembers are the methods for the accounts of members only.
var ofMembers = []string{pb.ClusterService_AddLearner_FullMethodName, pb.ClusterService_Promote_FullMethodName,
	pb.ClusterService_Announce_FullMethodName}

// forAnyRight are the methods for every user with a right on locks or the cluster.
var forAnyRight = []string{pb.LeaseService_OpenSession_FullMethodName, pb.LeaseService_Sign_FullMethodName,
	pb.PolicyService_ListPolicies_FullMethodName, pb.PolicyService_WatchTopology_FullMethodName}

// Every method has a need, a user without rules passes only public ones and those for every
// user, and a method without a row is forbidden.
func TestEveryMethodHasANeed(t *testing.T) {
	known := map[string]bool{}
	eachMethod(func(name string, m protoreflect.MethodDescriptor) {
		known[name] = true
		row, ok := table[name]
		require.True(t, ok, "%s has no row in the table", name)
		isOpen, ofMember := row.public || slices.Contains(open, name), slices.Contains(ofMembers, name)
		both := name == pb.ClusterService_Status_FullMethodName // of members and operators
		kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		require.NoError(t, err)
		var request proto.Message = kind.New().Interface()
		if err := check(as(t, auth.User{Name: "nobody"}), name, request); !isOpen {
			require.ErrorIs(t, err, engine.ErrForbidden, name)
			require.ErrorContains(t, err, "nobody", name)
		} else {
			require.NoError(t, err, name)
		}
		if slices.Contains(forAnyRight, name) {
			require.NoError(t, check(as(t, auth.User{Name: "alice", Rules: auth.Rules{{Right: auth.Read, Pattern: "a"}}}), name,
				request), name)
		}
		if !ofMember {
			require.NoError(t, check(as(t, auth.User{Name: "ops", Rules: auth.AdminRules()}), name, request), name)
		}
		if !isOpen && !ofMember && !both {
			require.ErrorIs(t, check(as(t, auth.User{Name: "members", Member: true}), name, request), engine.ErrForbidden,
				"a member account is no operator: %s", name)
		}
		require.NoError(t, check(context.Background(), name, request), "without users everyone may call %s", name)
	})
	for name := range table {
		path := slices.Contains([]string{metrics.Path, MePath, LivePath, UnknownPath}, name)
		require.True(t, known[name] || path, "%s is not a method", name)
	}
	require.ErrorIs(t, check(as(t, auth.User{Name: "ops", Rules: auth.AdminRules()}), "/leased.v1.LeaseService/New", nil),
		engine.ErrForbidden)
}

// A request needs the right on each lock, and on the whole prefix of a policy.
func TestRequestsNeedRights(t *testing.T) {
	prefix := "jobs/"
	jobs := func(right auth.Right) auth.User {
		return auth.User{Name: "alice", Rules: auth.Rules{{Right: right, Pattern: "jobs/*"}, {Right: right, Pattern: "one"}}}
	}
	for _, c := range []struct {
		method         string
		right          auth.Right
		allowed, other []proto.Message
	}{
		{pb.LeaseService_Acquire_FullMethodName, auth.Acquire,
			[]proto.Message{&pb.AcquireRequest{Resource: "jobs/7"}, &pb.AcquireRequest{Resources: []string{"jobs/1", "one"}}},
			[]proto.Message{&pb.AcquireRequest{Resource: "job"}, &pb.AcquireRequest{Resource: "one/1"},
				&pb.AcquireRequest{Resources: []string{"jobs/1", "two"}},
				&pb.AcquireRequest{Resource: "two", Resources: []string{"jobs/1"}}}},
		{pb.LeaseService_Inspect_FullMethodName, auth.Read, []proto.Message{&pb.InspectRequest{Resource: "jobs/7"}},
			[]proto.Message{&pb.InspectRequest{Resource: "x"}}},
		{pb.LeaseService_Break_FullMethodName, auth.Break, []proto.Message{&pb.BreakRequest{Resource: "jobs/7"}},
			[]proto.Message{&pb.BreakRequest{Resource: "x"}}},
		{pb.LeaseService_List_FullMethodName, auth.Read, []proto.Message{&pb.ListRequest{}, &pb.ListRequest{Prefix: "jo"},
			&pb.ListRequest{Prefix: "jobs/7"}, &pb.ListRequest{Prefix: "one"}},
			[]proto.Message{&pb.ListRequest{Prefix: "x"}, &pb.ListRequest{Prefix: "one/"}}},
		{pb.LeaseService_Watch_FullMethodName, auth.Read, []proto.Message{&pb.WatchRequest{Prefix: &prefix},
			&pb.WatchRequest{Resource: "one"}},
			[]proto.Message{&pb.WatchRequest{Prefix: proto.String("x")}, &pb.WatchRequest{Resource: "x"}}},
		{pb.PolicyService_SetPolicy_FullMethodName, auth.Policy,
			[]proto.Message{&pb.SetPolicyRequest{Policy: &pb.Policy{Prefix: "jobs/x"}},
				&pb.SetPolicyRequest{Policy: &pb.Policy{Prefix: "jobs/"}}},
			[]proto.Message{&pb.SetPolicyRequest{}, &pb.SetPolicyRequest{Policy: &pb.Policy{Prefix: "job"}},
				&pb.SetPolicyRequest{Policy: &pb.Policy{Prefix: "one"}}}},
		{pb.PolicyService_DeletePolicy_FullMethodName, auth.Policy, []proto.Message{&pb.DeletePolicyRequest{Prefix: "jobs/"}},
			[]proto.Message{&pb.DeletePolicyRequest{Prefix: "jobs"}}},
		{pb.PolicyService_AbortMigration_FullMethodName, auth.Policy,
			[]proto.Message{&pb.AbortMigrationRequest{Prefix: "jobs/"}}, []proto.Message{&pb.AbortMigrationRequest{}}},
	} {
		for _, request := range c.allowed {
			require.NoError(t, check(as(t, jobs(c.right)), c.method, request), "%s %v", c.method, request)
			for _, other := range []auth.Right{auth.Acquire, auth.Read, auth.Break, auth.Policy, auth.Cluster, auth.Metrics} {
				if other != c.right {
					require.ErrorIs(t, check(as(t, jobs(other)), c.method, request), engine.ErrForbidden, "%s with %s", c.method,
						other)
				}
			}
		}
		for _, request := range c.other {
			err := check(as(t, jobs(c.right)), c.method, request)
			require.ErrorIs(t, err, engine.ErrForbidden, "%s %v", c.method, request)
			require.ErrorContains(t, err, "user alice lacks the right "+string(c.right))
			require.ErrorContains(t, err, "leased user allow alice '"+string(c.right)+":")
		}
	}
}

// A user with the right Metrics alone can do no more than one without rules, except for
// reading metrics, which no other right allows.
func TestMetricsUserHasNoOtherRight(t *testing.T) {
	prometheus, nobody := as(t, auth.User{Name: "prometheus", Rules: auth.Rules{{Right: auth.Metrics}}}),
		as(t, auth.User{Name: "nobody"})
	eachMethod(func(name string, m protoreflect.MethodDescriptor) {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		require.NoError(t, err)
		request := kind.New().Interface()
		require.Equal(t, check(nobody, name, request) == nil, check(prometheus, name, request) == nil, name)
	})
	require.NoError(t, check(prometheus, metrics.Path, nil))
	require.NoError(t, check(as(t, auth.User{Name: "ops", Rules: auth.AdminRules()}), metrics.Path, nil))
	require.NoError(t, check(context.Background(), metrics.Path, nil), "without users everyone may read metrics")
	for _, user := range []auth.User{{Name: "nobody"}, {Name: "members", Member: true},
		{Name: "all", Rules: auth.AdminRules()[:1]},
		{Name: "all", Rules: auth.Rules{{Right: auth.Acquire, Pattern: "*"}, {Right: auth.Read, Pattern: "*"},
			{Right: auth.Break, Pattern: "*"}, {Right: auth.Policy, Pattern: "*"}, {Right: auth.Cluster}}}} {
		err := check(as(t, user), metrics.Path, nil)
		require.ErrorIs(t, err, engine.ErrForbidden)
		require.ErrorContains(t, err, "leased user allow "+user.Name+" metrics")
	}
}

package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// eachMethod calls f for every method of every service that the server offers.
func eachMethod(f func(name string, m protoreflect.MethodDescriptor)) {
	for _, file := range []protoreflect.FileDescriptor{pb.File_leased_v1_lease_proto, pb.File_leased_v1_admin_proto, grpc_health_v1.File_grpc_health_v1_health_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				f("/"+string(service.FullName())+"/"+string(m.Name()), m)
			}
		}
	}
}

func as(user User) context.Context {
	return context.WithValue(context.Background(), contextKey{}, &account{User: user})
}

// Every method has exactly one need, a user without rules passes only public ones and
// those that need any user, and a method without an entry is forbidden.
func TestEveryMethodHasANeed(t *testing.T) {
	known := map[string]bool{}
	eachMethod(func(name string, m protoreflect.MethodDescriptor) {
		known[name] = true
		n, ok := methods[name]
		require.True(t, ok, "%s has no entry in methods", name)
		set := 0
		for _, b := range []bool{n.public, n.anyUser, n.anyRight, n.member, n.cluster, n.request != nil} {
			if b {
				set++
			}
		}
		if n.member && n.cluster {
			set--
		}
		require.Equal(t, 1, set, name)
		kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		require.NoError(t, err)
		var request proto.Message = kind.New().Interface()
		if err := Check(as(User{Name: "nobody"}), name, request); !n.public && !n.anyUser {
			require.ErrorIs(t, err, engine.ErrForbidden, name)
			require.ErrorContains(t, err, "nobody", name)
		} else {
			require.NoError(t, err, name)
		}
		if n.anyRight {
			require.NoError(t, Check(as(User{Name: "alice", Rules: Rules{{Read, "a"}}}), name, request), name)
		}
		if !n.member || n.cluster {
			require.NoError(t, Check(as(User{Name: "ops", Rules: AdminRules()}), name, request), name)
		}
		if !n.public && !n.anyUser && !n.member {
			require.ErrorIs(t, Check(as(User{Name: "members", Member: true}), name, request), engine.ErrForbidden, "a member account is no operator: %s", name)
		}
		require.NoError(t, Check(context.Background(), name, request), "without users everyone may call %s", name)
	})
	for name := range methods {
		require.True(t, known[name], "%s is no method", name)
	}
	require.ErrorIs(t, Check(as(User{Name: "ops", Rules: AdminRules()}), "/leased.v1.LeaseService/New", nil), engine.ErrForbidden)
}

// A request needs the right on each lock, and on the whole prefix of a policy.
func TestRequestsNeedRights(t *testing.T) {
	prefix := "jobs/"
	jobs := func(right Right) User { return User{Name: "alice", Rules: Rules{{right, "jobs/*"}, {right, "one"}}} }
	for _, c := range []struct {
		method         string
		right          Right
		allowed, other []proto.Message
	}{
		{pb.LeaseService_Acquire_FullMethodName, Acquire,
			[]proto.Message{&pb.AcquireRequest{Resource: "jobs/7"}, &pb.AcquireRequest{Resources: []string{"jobs/1", "one"}}},
			[]proto.Message{&pb.AcquireRequest{Resource: "job"}, &pb.AcquireRequest{Resource: "one/1"}, &pb.AcquireRequest{Resources: []string{"jobs/1", "two"}},
				&pb.AcquireRequest{Resource: "two", Resources: []string{"jobs/1"}}}},
		{pb.LeaseService_Inspect_FullMethodName, Read, []proto.Message{&pb.InspectRequest{Resource: "jobs/7"}}, []proto.Message{&pb.InspectRequest{Resource: "x"}}},
		{pb.LeaseService_Break_FullMethodName, Break, []proto.Message{&pb.BreakRequest{Resource: "jobs/7"}}, []proto.Message{&pb.BreakRequest{Resource: "x"}}},
		{pb.LeaseService_List_FullMethodName, Read, []proto.Message{&pb.ListRequest{}, &pb.ListRequest{Prefix: "jo"}, &pb.ListRequest{Prefix: "jobs/7"}, &pb.ListRequest{Prefix: "one"}},
			[]proto.Message{&pb.ListRequest{Prefix: "x"}, &pb.ListRequest{Prefix: "one/"}}},
		{pb.LeaseService_Watch_FullMethodName, Read, []proto.Message{&pb.WatchRequest{Prefix: &prefix}, &pb.WatchRequest{Resource: "one"}},
			[]proto.Message{&pb.WatchRequest{Prefix: proto.String("x")}, &pb.WatchRequest{Resource: "x"}}},
		{pb.PolicyService_SetPolicy_FullMethodName, Policy, []proto.Message{&pb.SetPolicyRequest{Policy: &pb.Policy{Prefix: "jobs/x"}}, &pb.SetPolicyRequest{Policy: &pb.Policy{Prefix: "jobs/"}}},
			[]proto.Message{&pb.SetPolicyRequest{}, &pb.SetPolicyRequest{Policy: &pb.Policy{Prefix: "job"}}, &pb.SetPolicyRequest{Policy: &pb.Policy{Prefix: "one"}}}},
		{pb.PolicyService_DeletePolicy_FullMethodName, Policy, []proto.Message{&pb.DeletePolicyRequest{Prefix: "jobs/"}}, []proto.Message{&pb.DeletePolicyRequest{Prefix: "jobs"}}},
		{pb.PolicyService_AbortMigration_FullMethodName, Policy, []proto.Message{&pb.AbortMigrationRequest{Prefix: "jobs/"}}, []proto.Message{&pb.AbortMigrationRequest{}}},
	} {
		for _, request := range c.allowed {
			require.NoError(t, Check(as(jobs(c.right)), c.method, request), "%s %v", c.method, request)
			for _, other := range []Right{Acquire, Read, Break, Policy, Cluster, Metrics} {
				if other != c.right {
					require.ErrorIs(t, Check(as(jobs(other)), c.method, request), engine.ErrForbidden, "%s with %s", c.method, other)
				}
			}
		}
		for _, request := range c.other {
			err := Check(as(jobs(c.right)), c.method, request)
			require.ErrorIs(t, err, engine.ErrForbidden, "%s %v", c.method, request)
			require.ErrorContains(t, err, "user alice lacks the right "+string(c.right))
			require.ErrorContains(t, err, "leased user allow alice '"+string(c.right)+":")
		}
	}
}

// A user with the right Metrics alone can do no more than one without rules, except for
// reading metrics, which no other right allows.
func TestMetricsUserHasNoOtherRight(t *testing.T) {
	prometheus, nobody := as(User{Name: "prometheus", Rules: Rules{{Right: Metrics}}}), as(User{Name: "nobody"})
	eachMethod(func(name string, m protoreflect.MethodDescriptor) {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		require.NoError(t, err)
		request := kind.New().Interface()
		require.Equal(t, Check(nobody, name, request) == nil, Check(prometheus, name, request) == nil, name)
	})
	require.NoError(t, AllowMetrics(prometheus))
	require.NoError(t, AllowMetrics(as(User{Name: "ops", Rules: AdminRules()})))
	require.NoError(t, AllowMetrics(context.Background()), "without users everyone may read metrics")
	for _, user := range []User{{Name: "nobody"}, {Name: "members", Member: true}, {Name: "all", Rules: AdminRules()[:1]},
		{Name: "all", Rules: Rules{{Acquire, "*"}, {Read, "*"}, {Break, "*"}, {Policy, "*"}, {Cluster, ""}}}} {
		err := AllowMetrics(as(user))
		require.ErrorIs(t, err, engine.ErrForbidden)
		require.ErrorContains(t, err, "leased user allow "+user.Name+" metrics")
	}
}

// A certificate identifies a user only if the TLS handshake has verified it.
func TestUnverifiedCertificate(t *testing.T) {
	certificate := &x509.Certificate{Subject: pkix.Name{CommonName: "alice"}}
	require.Empty(t, subjectOf(tls.ConnectionState{}))
	require.Empty(t, subjectOf(tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}))
	require.Equal(t, "alice", subjectOf(tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}, VerifiedChains: [][]*x509.Certificate{{certificate}}}))
}

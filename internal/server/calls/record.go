package calls

import (
	"strings"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/audit"
)

// record returns what the audit log and traces have of a call. response is nil before the
// call has run.
func (m *Method) record(request, response any) audit.Record {
	r := audit.Record{Event: m.event, Resources: locksOf(request)}
	if granted, ok := response.(*pb.AcquireResponse); ok && granted != nil {
		r.Resources, r.Holder = granted.Resources, granted.Holder // also of a caller without a name
	} else if q, ok := request.(interface{ GetHolder() string }); ok {
		r.Holder = q.GetHolder()
	}
	for _, message := range []any{request, response} {
		if q, ok := message.(interface{ GetToken() uint64 }); ok {
			r.Token = q.GetToken()
		}
	}
	if granted, ok := response.(interface{ GetMode() string }); ok {
		r.Mode = granted.GetMode()
	}
	if m.describe != nil {
		m.describe(request, &r)
	}
	return r
}

// locksOf returns the locks that a request names.
func locksOf(request any) (names []string) {
	switch q := request.(type) {
	case interface{ GetLease() *pb.HeldLease }:
		return q.GetLease().GetResources()
	case interface{ GetResources() []string }:
		names = q.GetResources()
	}
	if q, ok := request.(interface{ GetResource() string }); ok && q.GetResource() != "" {
		return append([]string{q.GetResource()}, names...)
	}
	return names
}

// on returns a describe function for requests of one type.
func on[Q any](describe func(Q, *audit.Record)) func(any, *audit.Record) {
	return func(request any, r *audit.Record) { describe(request.(Q), r) }
}

// describeMember adds the member that a call is about.
func describeMember(request any, r *audit.Record) {
	r.Subject = request.(interface{ GetId() string }).GetId()
	switch q := request.(type) {
	case *pb.AddLearnerRequest:
		r.Detail = "raft " + q.RaftAddress + ", api " + q.ApiAddress
	case *pb.AnnounceRequest:
		r.Detail = "api " + q.ApiAddress
	}
}

// describePolicy adds the prefix of a policy, and its timings that are not defaults.
func describePolicy(request any, r *audit.Record) {
	r.Subject = policyPrefix(request) + "*"
	set, ok := request.(*pb.SetPolicyRequest)
	if !ok {
		return
	}
	p := set.Policy
	r.Mode = p.GetMode()
	var parts []string
	for _, field := range []struct{ name, value string }{{"ttl", p.GetTtl()}, {"renew", p.GetRenew()},
		{"drift", p.GetDrift()}, {"lock-delay", p.GetLockDelay()}} {
		if field.value != "" {
			parts = append(parts, field.name+" "+field.value)
		}
	}
	if set.Now {
		parts = append(parts, "without waiting for leases")
	}
	r.Detail = strings.Join(parts, ", ")
}

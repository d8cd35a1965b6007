package auth

import (
	"net/http"
	"path"
	"strings"

	"google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/leased-project/leased/api/leased/v1"
)

// need is what a method requires of its caller. Exactly one field is set, except for a
// method that a member account or the right Cluster may call. The functions return the
// error of a user who lacks a right, or nil.
type need struct {
	public   bool                      // no user: supervisors and load balancers have no account
	anyUser  bool                      // the service checks rights and ownership for each operation
	anyRight bool                      // a user with a right other than Metrics, whichever it is
	member   bool                      // the account of a member
	cluster  bool                      // the right Cluster
	request  func(*account, any) error // rights on the locks of the request
}

// methods has the need of every method. Members and operators have different
// credentials: the secret of a member, which lies on every host, gives no right of an
// operator or a client.
var methods = map[string]need{
	grpc_health_v1.Health_Check_FullMethodName: {public: true},
	grpc_health_v1.Health_Watch_FullMethodName: {public: true},
	grpc_health_v1.Health_List_FullMethodName:  {public: true},
	pb.ClusterService_Health_FullMethodName:    {public: true},

	pb.LeaseService_OpenSession_FullMethodName:  {anyRight: true},
	pb.LeaseService_CloseSession_FullMethodName: {anyUser: true},
	pb.LeaseService_Renew_FullMethodName:        {anyUser: true},
	pb.LeaseService_Release_FullMethodName:      {anyUser: true},
	pb.LeaseService_Session_FullMethodName:      {anyUser: true},
	pb.LeaseService_Sign_FullMethodName:         {anyRight: true},
	pb.LeaseService_Acquire_FullMethodName: {request: on(func(a *account, r *pb.AcquireRequest) error {
		return a.allowAll(Acquire, append([]string{r.Resource}, r.Resources...)...)
	})},
	pb.LeaseService_Inspect_FullMethodName: {request: on(func(a *account, r *pb.InspectRequest) error {
		return a.allowAll(Read, r.Resource)
	})},
	pb.LeaseService_Break_FullMethodName: {request: on(func(a *account, r *pb.BreakRequest) error {
		return a.allowAll(Break, r.Resource)
	})},
	pb.LeaseService_History_FullMethodName: {request: on(func(a *account, r *pb.HistoryRequest) error {
		return a.allowAll(Read, r.Resource)
	})},
	pb.LeaseService_ReportRefusal_FullMethodName: {request: on(func(a *account, r *pb.ReportRefusalRequest) error {
		return a.allowAll(Acquire, r.Resource)
	})},
	pb.LeaseService_Overview_FullMethodName: {request: on(func(a *account, r *pb.OverviewRequest) error {
		return a.allowSome(Read, r.Prefix)
	})},
	pb.LeaseService_List_FullMethodName: {request: on(func(a *account, r *pb.ListRequest) error {
		return a.allowSome(Read, r.Prefix)
	})},
	pb.LeaseService_Watch_FullMethodName: {request: on(func(a *account, r *pb.WatchRequest) error {
		if r.Prefix != nil {
			return a.allowSome(Read, *r.Prefix)
		}
		return a.allowAll(Read, r.Resource)
	})},

	pb.PolicyService_ListPolicies_FullMethodName:  {anyRight: true},
	pb.PolicyService_WatchTopology_FullMethodName: {anyRight: true},
	pb.PolicyService_SetPolicy_FullMethodName: {request: on(func(a *account, r *pb.SetPolicyRequest) error {
		return a.allowPrefix(Policy, r.GetPolicy().GetPrefix())
	})},
	pb.PolicyService_DeletePolicy_FullMethodName: {request: on(func(a *account, r *pb.DeletePolicyRequest) error {
		return a.allowPrefix(Policy, r.Prefix)
	})},
	pb.PolicyService_AbortMigration_FullMethodName: {request: on(func(a *account, r *pb.AbortMigrationRequest) error {
		return a.allowPrefix(Policy, r.Prefix)
	})},

	pb.RedisService_GetFleet_FullMethodName:     {cluster: true},
	pb.RedisService_SetFleet_FullMethodName:     {cluster: true},
	pb.RedisService_ProvideFloor_FullMethodName: {cluster: true},

	pb.ClusterService_Status_FullMethodName:          {cluster: true, member: true}, // members that form a cluster call it
	pb.ClusterService_ClusterStatus_FullMethodName:   {cluster: true},
	pb.ClusterService_Join_FullMethodName:            {cluster: true},
	pb.ClusterService_Remove_FullMethodName:          {cluster: true},
	pb.ClusterService_Transfer_FullMethodName:        {cluster: true},
	pb.ClusterService_SaveSnapshot_FullMethodName:    {cluster: true},
	pb.ClusterService_InspectSnapshot_FullMethodName: {cluster: true},
	pb.ClusterService_RestoreSnapshot_FullMethodName: {cluster: true},

	pb.ClusterService_AddLearner_FullMethodName: {member: true},
	pb.ClusterService_Promote_FullMethodName:    {member: true},
	pb.ClusterService_Announce_FullMethodName:   {member: true},
}

// isPublic reports whether an HTTP request needs no user: for probes, public methods, and
// the files of the dashboard. A file has an extension; the paths of the dashboard's data
// have none.
func isPublic(r *http.Request) bool {
	if publicPaths[r.Method+" "+r.URL.Path] {
		return true
	}
	isFile := r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/ui/") && path.Ext(r.URL.Path) != ""
	return isFile && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// publicPaths are HTTP paths that need no user. The paths of public methods are
// added by init.
var publicPaths = map[string]bool{http.MethodGet + " /livez": true, http.MethodHead + " /livez": true,
	http.MethodGet + " /readyz": true, http.MethodHead + " /readyz": true, http.MethodPost + " /v1/health": true}

func init() {
	for name, n := range methods {
		if n.public {
			publicPaths[http.MethodPost+" "+name] = true
		}
	}
}

// on returns a check of requests of one type.
func on[R any](check func(*account, R) error) func(*account, any) error {
	return func(a *account, request any) error { return check(a, request.(R)) }
}

package auth

import (
	"context"
	"fmt"
	"net/http"

	"google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// public lists the methods that need no user: process supervisors and load
// balancers have no account.
var public = map[string]bool{
	pb.ClusterService_Health_FullMethodName:                         true,
	grpc_health_v1.Health_Check_FullMethodName:                      true,
	grpc_health_v1.Health_Watch_FullMethodName:                      true,
	http.MethodGet + " /healthz":                                    true,
	http.MethodPost + " /v1/health":                                 true,
	http.MethodPost + " " + pb.ClusterService_Health_FullMethodName: true,
}

// memberOnly lists the methods that need the account of a member. Each of them can
// change where members and clients connect to and send their secrets: Join makes
// this member send its own, a snapshot contains the addresses of all members, and
// SetFleet names the Redis nodes.
var memberOnly = map[string]bool{
	pb.ClusterService_AddLearner_FullMethodName:      true,
	pb.ClusterService_Promote_FullMethodName:         true,
	pb.ClusterService_Announce_FullMethodName:        true,
	pb.ClusterService_Join_FullMethodName:            true,
	pb.ClusterService_RestoreSnapshot_FullMethodName: true,
	pb.RedisService_SetFleet_FullMethodName:          true,
}

// CheckMethod returns an error if the user of ctx may not call a gRPC method.
func CheckMethod(ctx context.Context, method string) error {
	a := accountOf(ctx)
	if a == nil || a.Member || !memberOnly[method] {
		return nil
	}
	return fmt.Errorf("%w: %s requires a member account, and user %s is not one; use the secret of an account made with `leased user add --member`",
		engine.ErrInvalid, method, a.Name)
}

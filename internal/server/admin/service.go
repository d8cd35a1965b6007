package admin

import (
	"sync/atomic"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/fleet"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/lease/engine"
)

// Service implements leased.v1.PolicyService, RedisService and ClusterService. All exported fields
// are required.
type Service struct {
	pb.UnimplementedPolicyServiceServer
	pb.UnimplementedRedisServiceServer
	pb.UnimplementedClusterServiceServer

	Router *routing.Router
	Keeper *fleet.Keeper
	// FilePolicies returns the policies of this member's configuration file.
	FilePolicies func() []engine.Policy
	// Version is the version of the program, for Status.
	Version string

	stopping atomic.Bool
}

package httpapi

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
)

// A request is sent to the next leader only if a copy of it cannot acquire a second lease, or repeat a change of an
// operator.
func TestRepeatable(t *testing.T) {
	t.Parallel()
	for _, yes := range []any{&pb.InspectRequest{}, &pb.RenewRequest{}, &pb.ReleaseRequest{},
		&pb.AcquireRequest{Resource: "a", Attempt: "0123456789abcdef"},
		&pb.AcquireRequest{Resource: "a", SessionId: "s", Nonce: 1}} {
		require.True(t, repeatable(yes), "%T %v", yes, yes)
	}
	for _, no := range []any{&pb.AcquireRequest{Resource: "a"}, &pb.AcquireRequest{Resource: "a", SessionId: "s"},
		&pb.BreakRequest{}, &pb.SetPolicyRequest{}, &pb.SetFleetRequest{}, &pb.ProvideFloorRequest{}, &pb.TransferRequest{}} {
		require.False(t, repeatable(no), "%T %v", no, no)
	}
}

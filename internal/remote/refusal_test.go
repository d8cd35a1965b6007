package remote_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// ReportRefusal records the report, or answers with refuseReports.
func (m *member) ReportRefusal(_ context.Context, request *pb.ReportRefusalRequest) (*pb.ReportRefusalResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuseReports != nil {
		return nil, wire.ToStatus(m.refuseReports)
	}
	m.reports = append(m.reports, request)
	return &pb.ReportRefusalResponse{}, nil
}

// TestReportRefusal checks that a report goes to the leader, and that the errors of the
// service keep their meaning.
func TestReportRefusal(t *testing.T) {
	t.Parallel()
	follower, leading := startMember(t), startMember(t)
	follower.set(func() { follower.refuseReports = &wire.NotLeaderError{Leader: leading.address, Text: "not the leader"} })
	b := backend(t, remote.Config{}, follower)
	refusal := engine.Refusal{Resource: "orders", Token: 7, Mark: 9, Gate: "sql", Reason: "stale", Holder: "worker-1"}
	require.NoError(t, b.ReportRefusal(bounded(t), refusal))
	leading.mu.Lock()
	require.Len(t, leading.reports, 1)
	require.True(t, proto.Equal(leading.reports[0],
		&pb.ReportRefusalRequest{Resource: "orders", Token: 7, Mark: 9, Gate: "sql", Reason: "stale", Holder: "worker-1"}))
	leading.mu.Unlock()

	leading.set(func() { leading.refuseReports = fmt.Errorf("%w: user ci may not acquire orders", engine.ErrForbidden) })
	require.ErrorIs(t, b.ReportRefusal(bounded(t), refusal), engine.ErrForbidden)
	leading.server.Stop()
	follower.server.Stop()
	require.Error(t, b.ReportRefusal(bounded(t), refusal))
}

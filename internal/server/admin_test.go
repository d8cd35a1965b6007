package server_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

func TestSnapshots(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	ctx := testContext(t)
	conn := dial(t, s.Address())
	api, cluster := pb.NewLeaseServiceClient(conn), pb.NewClusterServiceClient(conn)
	before, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: "a", Ttl: "1m"})
	require.NoError(t, err)

	saving, err := cluster.SaveSnapshot(ctx, &pb.SaveSnapshotRequest{})
	require.NoError(t, err)
	var file []byte
	for {
		chunk, err := saving.Recv()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		file = append(file, chunk.Data...)
	}
	inspecting, err := cluster.InspectSnapshot(ctx)
	require.NoError(t, err)
	require.NoError(t, inspecting.Send(&pb.Chunk{Data: file}))
	info, err := inspecting.CloseAndRecv()
	require.NoError(t, err)
	require.EqualValues(t, before.Token, info.LastToken)

	restoring, err := cluster.RestoreSnapshot(ctx)
	require.NoError(t, err)
	require.NoError(t, restoring.Send(&pb.Chunk{Data: file[:10]}))
	require.NoError(t, restoring.Send(&pb.Chunk{Data: file[10:]}))
	restored, err := restoring.CloseAndRecv()
	require.NoError(t, err)
	require.Greater(t, restored.Floor, uint64(1<<32))
	after, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: "a"})
	require.NoError(t, err)
	require.Greater(t, after.Token, restored.Floor, "a restore ends all leases")

	broken, err := cluster.RestoreSnapshot(ctx)
	require.NoError(t, err)
	require.NoError(t, broken.Send(&pb.Chunk{Data: []byte("not a snapshot")}))
	_, err = broken.CloseAndRecv()
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrInvalid)
}

func TestHealth(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	conn := dial(t, s.Address())
	health, err := pb.NewClusterServiceClient(conn).Health(testContext(t), &pb.HealthRequest{})
	require.NoError(t, err)
	require.Equal(t, "serving", health.Status)
	require.Empty(t, health.Reason)
	// Tokens come near the bound of the gates: the member serves, and says so.
	require.NoError(t, s.Node().Change(testContext(t), &machine.Reconcile{Ceiling: 1 << 39}))
	health, err = pb.NewClusterServiceClient(conn).Health(testContext(t), &pb.HealthRequest{})
	require.NoError(t, err)
	require.Equal(t, "serving", health.Status)
	require.Contains(t, health.Reason, "LeasedTokensNearBound")
	eventually(t, "the gRPC health service agrees", func() bool {
		response, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(),
			&grpc_health_v1.HealthCheckRequest{})
		return err == nil && response.Status == grpc_health_v1.HealthCheckResponse_SERVING
	})
}

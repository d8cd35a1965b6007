package server_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

func dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestStream: one message has many operations, and all are answered.
func TestStream(t *testing.T) {
	const many = 200
	s := startOne(t)
	stream, err := pb.NewLeaseServiceClient(dial(t, s.Address())).Session(patient(t))
	require.NoError(t, err)
	id := engine.NewSessionID()
	require.NoError(t, stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{
		{Id: 1, Session: id[:], Call: &pb.Operation_Renew{Renew: &pb.RenewCall{}}}}}))
	message, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "invalid", message.Answers[0].Error.Code, "it was not opened")

	require.NoError(t, stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{
		{Id: 2, Session: id[:], Call: &pb.Operation_Attach{Attach: &pb.AttachCall{}}}}}))
	message, err = stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "expired", message.Answers[0].Error.Code, "attach never makes a session")

	require.NoError(t, stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{
		{Id: 3, Session: id[:], Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(engine.DefaultTTL)}}}}}))
	message, err = stream.Recv()
	require.NoError(t, err)
	require.Nil(t, message.Answers[0].Error)

	var operations []*pb.Operation
	for i := range many {
		operations = append(operations, &pb.Operation{Id: uint64(100 + i), Session: id[:],
			Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: uint64(i + 1), Resources: []string{fmt.Sprint("lock ", i)}}}})
	}
	require.NoError(t, stream.Send(&pb.SessionRequest{Operations: operations}))
	tokens := map[uint64]bool{}
	for len(tokens) < many {
		message, err := stream.Recv()
		require.NoError(t, err)
		for _, a := range message.Answers {
			require.Nil(t, a.Error)
			tokens[a.Token] = true
		}
	}
}

// events reads a watch on another goroutine.
func events(t testing.TB, address string, request *pb.WatchRequest) (next func() *pb.Event) {
	t.Helper()
	stream, err := pb.NewLeaseServiceClient(dial(t, address)).Watch(patient(t), request)
	require.NoError(t, err)
	return func() *pb.Event {
		t.Helper()
		e, err := stream.Recv()
		require.NoError(t, err)
		return e
	}
}

func TestWatch(t *testing.T) {
	s := startOne(t)
	prefix := "w/"
	for name, request := range map[string]*pb.WatchRequest{"a lock": {Resource: "w/lock"}, "a prefix": {Prefix: &prefix}} {
		t.Run(name, func(t *testing.T) {
			ctx := patient(t)
			api := pb.NewLeaseServiceClient(dial(t, s.Address()))
			first, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: "w/lock", Ttl: "1m", Holder: "first"})
			require.NoError(t, err)
			next := events(t, s.Address(), request)
			e := next()
			require.Equal(t, "granted", e.Type)
			require.Equal(t, "first", e.Party.Holder)
			require.Equal(t, first.Token, e.Party.Token)
			require.Equal(t, "synced", next().Type)

			granted := make(chan *pb.AcquireResponse, 1)
			go func() {
				second, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: "w/lock", Ttl: "300ms", Wait: "1m", Holder: "second"})
				if err != nil {
					t.Error(err)
				}
				granted <- second
			}()
			e = next()
			require.Equal(t, "waiting", e.Type)
			require.EqualValues(t, 1, e.Place)
			_, err = api.Release(ctx, &pb.ReleaseRequest{Resource: "w/lock", Token: first.Token})
			require.NoError(t, err)
			require.Equal(t, "released", next().Type)
			e = next()
			require.Equal(t, "granted", e.Type)
			require.Equal(t, (<-granted).Token, e.Party.Token)
			require.Equal(t, "expired", next().Type, "nobody renews it")

			third, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: "w/lock", Ttl: "1m"})
			require.NoError(t, err)
			require.Equal(t, "granted", next().Type)
			_, err = api.Break(ctx, &pb.BreakRequest{Resource: "w/lock", Token: third.Token})
			require.NoError(t, err)
			require.Equal(t, "broken", next().Type)
		})
	}
}

func TestSnapshots(t *testing.T) {
	s := startOne(t)
	ctx := patient(t)
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
	require.Greater(t, after.Token, restored.Floor, "nobody holds it any more")

	broken, err := cluster.RestoreSnapshot(ctx)
	require.NoError(t, err)
	require.NoError(t, broken.Send(&pb.Chunk{Data: []byte("no snapshot")}))
	_, err = broken.CloseAndRecv()
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrInvalid)
}

func TestHealth(t *testing.T) {
	s := startOne(t)
	conn := dial(t, s.Address())
	health, err := pb.NewClusterServiceClient(conn).Health(patient(t), &pb.HealthRequest{})
	require.NoError(t, err)
	require.Equal(t, "serving", health.Status)
	eventually(t, "gRPC's own health service agrees", func() bool {
		response, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
		return err == nil && response.Status == grpc_health_v1.HealthCheckResponse_SERVING
	})
}

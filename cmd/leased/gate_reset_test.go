package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/filegate"
)

// deposedHolder grants a lock, and loses the leadership during its release.
type deposedHolder struct{ silentMember }

func (*deposedHolder) Acquire(_ context.Context, r *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	return &pb.AcquireResponse{Resource: r.Resource, Token: 7}, nil
}

func (*deposedHolder) Release(context.Context, *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	return nil, wire.ToStatus(lease.ErrUncertain)
}

// A reset whose lock could not be released has happened: the command says so, and fails.
func TestResetIsReportedWithoutItsRelease(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	files, err := filegate.New(folder, fencing.Rule{})
	require.NoError(t, err)
	require.NoError(t, files.Enter(t.Context(), "orders/42", 1000))
	address := serveMember(t, func(s *grpc.Server) { pb.RegisterLeaseServiceServer(s, &deposedHolder{}) })
	var text strings.Builder
	root := newRoot()
	root.SetErr(&text)
	code := execute(root, []string{"gate", "reset", "orders/42", "--files", folder, "--endpoint", address})
	require.Equal(t, wire.ExitUncertain, code, text.String())
	require.Contains(t, text.String(), "orders/42: mark 1000, new mark 7\n")
	mark, err := files.Mark(t.Context(), "orders/42")
	require.NoError(t, err)
	require.EqualValues(t, 7, mark)
}

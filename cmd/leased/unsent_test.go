package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

// The error of a call that changes nothing does not say that something may have happened.
func TestReadIsNotUncertain(t *testing.T) {
	t.Parallel()
	err := readError(fmt.Errorf("list locks: %w: leadership lost", lease.ErrUncertain))
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.ErrorContains(t, err, "no answer: list locks: leadership lost; try again")
}

// A request that cannot be sent, because a name is not UTF-8, has not happened: the command is wrong, and neither is
// its outcome uncertain nor the service unavailable.
func TestUnsentRequestIsInvalid(t *testing.T) {
	t.Parallel()
	a := &access{endpoint: serveMember(t, func(s *grpc.Server) {
		pb.RegisterLeaseServiceServer(s, pb.UnimplementedLeaseServiceServer{})
	})}
	for name, call := range map[string]func(context.Context, api) error{
		"acquire": func(ctx context.Context, service api) error {
			_, err := service.Acquire(ctx, &pb.AcquireRequest{Resource: "r\xff"})
			return err
		},
		"watch": func(ctx context.Context, service api) error {
			_, err := service.Watch(ctx, &pb.WatchRequest{Resource: "r\xff"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := readError(a.call(t.Context(), func(service api) error { return call(t.Context(), service) }))
			require.ErrorIs(t, err, lease.ErrInvalid)
			code, _ := explain(err)
			require.Equal(t, wire.ExitUsage, code)
		})
	}
}

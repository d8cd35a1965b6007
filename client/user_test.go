package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// A lease that a client acquires directly from the Redis nodes belongs to the user as
// whom the service knows the client, so that members renew and release it for that user
// and for nobody else.
func TestDirectLeaseBelongsToTheUser(t *testing.T) {
	t.Parallel()
	alices, bobs := secret.New(), secret.New()
	users := auth.NewUsers([]auth.User{{Name: "alice", Hashes: []secret.Hash{secret.HashOf(alices)},
		Rules: auth.AdminRules()},
		{Name: "bob", Hashes: []secret.Hash{secret.HashOf(bobs)}, Rules: auth.AdminRules()}})
	s := startService(t, 1, func(c *server.Config) { c.Users = users })
	c, _ := s.dial(client.WithSecret(alices))
	held, err := c.Acquire(testserver.Context(t), "fast/1", lease.WithHolder("worker"))
	require.NoError(t, err)
	require.Equal(t, lease.Efficiency, held.Mode())

	as := func(text string) pb.LeaseServiceClient {
		conn, err := grpc.NewClient(s.endpoints()[0], secret.DialOptions(nil, text)...)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return pb.NewLeaseServiceClient(conn)
	}
	inspected, err := as(bobs).Inspect(testserver.Context(t), &pb.InspectRequest{Resource: "fast/1"})
	require.NoError(t, err)
	require.Equal(t, "alice", inspected.Lock.Holders[0].User)
	_, err = as(bobs).Renew(testserver.Context(t), &pb.RenewRequest{Resource: "fast/1", Token: uint64(held.Token())})
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrNotHeld)
	_, err = as(alices).Renew(testserver.Context(t), &pb.RenewRequest{Resource: "fast/1", Token: uint64(held.Token())})
	require.NoError(t, err)
	require.NoError(t, held.Release(testserver.Context(t)))
}

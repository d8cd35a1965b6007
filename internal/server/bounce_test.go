package server_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

// servedElsewhere is a server, a session that holds fast/a through it, with nonce
// 5, and the engine of another member, which has taken the lease over since: the
// session goes from the one to the other and back, as leadership does.
func servedElsewhere(t *testing.T) (s *server.Server, id lease.SessionID, token float64, other lease.Session) {
	t.Helper()
	config := slowConfig(t)
	config.NodeTimeout = config.MaxTTL / 2
	s, _ = startOn(t, config)
	_, opened := post(t, s.Address(), "/v1/open-session", `{"ttl":"1m"}`)
	id, err := lease.ParseSessionID(opened["sessionId"].(string))
	require.NoError(t, err)
	code, granted := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":"fast/a","sessionId":%q,"nonce":5}`, id))
	require.Equal(t, http.StatusOK, code, granted)
	engine, err := redlockadapter.New(patient(t), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close(patient(t))) })
	other, err = engine.Open(patient(t), lease.SessionConfig{ID: id, TTL: time.Minute})
	require.NoError(t, err)
	adopter := other.(interface {
		Adopt(context.Context, lease.Request, fencing.Token) (lease.Grant, error)
	})
	grant, err := adopter.Adopt(patient(t), lease.Request{Nonce: 5, Resources: []fencing.Resource{"fast/a"}}, fencing.None)
	require.NoError(t, err)
	require.Equal(t, granted["token"], float64(grant.Token))
	return s, id, float64(grant.Token), other
}

// TestReleasedAtAnotherMember: what was released through another member stays
// free when the session comes back, and is renewed, here.
func TestReleasedAtAnotherMember(t *testing.T) {
	s, id, _, other := servedElsewhere(t)
	require.NoError(t, other.Release(patient(t), 5))
	code, answer := post(t, s.Address(), "/v1/renew", fmt.Sprintf(`{"sessionId":%q}`, id))
	require.Equal(t, http.StatusOK, code, answer)
	_, inspected := post(t, s.Address(), "/v1/inspect", `{"resource":"fast/a"}`)
	require.NotContains(t, fmt.Sprint(inspected), "holders")
	code, granted := post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a","ttl":"1m"}`)
	require.Equal(t, http.StatusOK, code, granted)
}

// TestHeldThroughAnotherMember: what another member has taken over is held still
// when the session comes back here, with the same token, and no loss is told.
func TestHeldThroughAnotherMember(t *testing.T) {
	s, id, token, _ := servedElsewhere(t)
	stream, err := pb.NewLeaseServiceClient(dial(t, s.Address())).Session(patient(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{{Id: 1, Session: id[:],
		Call: &pb.Operation_Attach{Attach: &pb.AttachCall{TtlNanos: int64(time.Minute), Held: []*pb.AcquireCall{{Nonce: 5, Resources: []string{"fast/a"}}}}}}}}))
	message, err := stream.Recv()
	require.NoError(t, err)
	require.Empty(t, message.Notices)
	require.Nil(t, message.Answers[0].Error)
	require.Len(t, message.Answers[0].Holds, 1)
	require.Equal(t, token, float64(message.Answers[0].Holds[0].Token))
	require.NoError(t, stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{{Id: 2, Session: id[:], Call: &pb.Operation_Renew{Renew: &pb.RenewCall{}}}}}))
	message, err = stream.Recv()
	require.NoError(t, err)
	require.Empty(t, message.Notices)
	require.Nil(t, message.Answers[0].Error)
	_, inspected := post(t, s.Address(), "/v1/inspect", `{"resource":"fast/a"}`)
	require.Contains(t, fmt.Sprint(inspected), fmt.Sprint("token:", token))
}

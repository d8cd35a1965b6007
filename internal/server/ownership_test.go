package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// postAs makes a JSON call with a secret.
func postAs(t testing.TB, address, text, path, body string) (code int, answer map[string]any) {
	t.Helper()
	response := send(t, newPost(t, address, path, body), secret.Header(text))
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &answer), string(raw))
	return response.StatusCode, answer
}

// A session belongs to the user that opened it. Another user with the same rights
// cannot open, attach, renew, close, use or release it, on any path.
func TestSessionBelongsToItsUser(t *testing.T) {
	t.Parallel()
	alice, alices := newUser(t, "alice", "acquire:*", "read:*")
	bob, bobs := newUser(t, "bob", "acquire:*", "read:*", "break:free/*")
	s, _ := startWithUsers(t, alice, bob)
	ctx := testContext(t)
	asAlice, asBob := pb.NewLeaseServiceClient(dialAs(t, s.Address(), alices)),
		pb.NewLeaseServiceClient(dialAs(t, s.Address(), bobs))
	opened, err := asAlice.OpenSession(ctx, &pb.OpenSessionRequest{Ttl: "10m"})
	require.NoError(t, err)
	granted, err := asAlice.Acquire(ctx, &pb.AcquireRequest{Resource: "jobs/7", SessionId: opened.SessionId,
		Holder: "worker"})
	require.NoError(t, err)
	id, err := engine.ParseSessionID(opened.SessionId)
	require.NoError(t, err)

	forbidden := func(what string, err error) {
		t.Helper()
		require.ErrorIs(t, wire.FromStatus(err), engine.ErrForbidden, what)
		require.NotContains(t, err.Error(), "alice", "it does not name the owner")
	}
	_, err = asBob.OpenSession(ctx, &pb.OpenSessionRequest{Ttl: "10m", SessionId: opened.SessionId})
	forbidden("open", err)
	_, err = asBob.Renew(ctx, &pb.RenewRequest{SessionId: opened.SessionId})
	forbidden("renew", err)
	_, err = asBob.Acquire(ctx, &pb.AcquireRequest{Resource: "jobs/8", SessionId: opened.SessionId})
	forbidden("acquire", err)
	_, err = asBob.Release(ctx, &pb.ReleaseRequest{SessionId: opened.SessionId, Nonce: granted.Nonce})
	forbidden("release", err)
	_, err = asBob.CloseSession(ctx, &pb.CloseSessionRequest{SessionId: opened.SessionId})
	forbidden("close", err)
	for path, body := range map[string]string{"renew": `{"sessionId":%q}`, "close-session": `{"sessionId":%q}`,
		"open-session": `{"sessionId":%q,"ttl":"10m"}`,
		"release":      `{"sessionId":%q,"nonce":1}`, "acquire": `{"sessionId":%q,"resource":"jobs/8"}`} {
		code, answer := postAs(t, s.Address(), bobs, "/v1/"+path, fmt.Sprintf(body, opened.SessionId))
		require.Equal(t, http.StatusForbidden, code, "%s: %v", path, answer)
	}
	stream := openStreamAs(t, s.Address(), bobs)
	require.Equal(t, "forbidden", stream.call(id,
		&pb.Operation{Call: &pb.Operation_Attach{Attach: &pb.AttachCall{}}}).Error.GetCode())
	require.Equal(t, "forbidden", stream.call(id, openCall()).Error.GetCode())
	for name, op := range map[string]*pb.Operation{
		"renew":   {Call: &pb.Operation_Renew{Renew: &pb.RenewCall{}}},
		"release": {Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: granted.Nonce}}},
		"close":   {Call: &pb.Operation_Close{Close: &pb.CloseCall{}}},
		"acquire": {Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 9, Resources: []string{"jobs/9"}}}},
	} {
		require.Equal(t, "invalid", stream.call(id, op).Error.GetCode(), name)
	}

	// By resource and token the lease counts as not held, whether the token is right or not.
	for _, token := range []uint64{granted.Token, granted.Token + 1} {
		_, err = asBob.Renew(ctx, &pb.RenewRequest{Resource: "jobs/7", Token: token})
		require.ErrorIs(t, wire.FromStatus(err), engine.ErrNotHeld)
		require.ErrorContains(t, err, "by user bob")
		released, err := asBob.Release(ctx, &pb.ReleaseRequest{Resource: "jobs/7", Token: token})
		require.NoError(t, err)
		require.False(t, released.Released)
	}
	_, err = asBob.Break(ctx, &pb.BreakRequest{Resource: "jobs/7", Token: granted.Token})
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrForbidden)
	require.ErrorContains(t, err, "lacks the right break")

	renewed, err := asAlice.Renew(ctx, &pb.RenewRequest{SessionId: opened.SessionId})
	require.NoError(t, err)
	require.Equal(t, []uint64{granted.Token}, renewed.Tokens, "the owner still has everything")
	released, err := asAlice.Release(ctx, &pb.ReleaseRequest{Resource: "jobs/7", Token: granted.Token})
	require.NoError(t, err)
	require.True(t, released.Released)

	free, err := asAlice.Acquire(ctx, &pb.AcquireRequest{Resource: "free/1", Ttl: "10m"})
	require.NoError(t, err)
	_, err = asBob.Break(ctx, &pb.BreakRequest{Resource: "free/1", Token: free.Token})
	require.NoError(t, err, "a user with the right breaks it")

	_, err = asAlice.CloseSession(ctx, &pb.CloseSessionRequest{SessionId: opened.SessionId})
	require.NoError(t, err)
	_, err = asBob.OpenSession(ctx, &pb.OpenSessionRequest{Ttl: "10m", SessionId: opened.SessionId})
	require.NoError(t, err, "the id of an ended session is free")
	_, err = asAlice.Renew(ctx, &pb.RenewRequest{SessionId: opened.SessionId})
	forbidden("renew of the next owner's session", err)
}

// Tokens, nonces, session ids and clients are visible to the owner and to users who may break
// the lock. Others with read see the holder, the user and the time left, in Inspect,
// List, Watch and the error of an acquire. Locks without read are not listed.
func TestVisibility(t *testing.T) {
	t.Parallel()
	alice, alices := newUser(t, "alice", "acquire:*", "read:jobs/*")
	bob, bobs := newUser(t, "bob", "acquire:jobs/*", "read:jobs/*")
	ops, opss := newUser(t, "ops", "read:*", "break:*")
	blind, blinds := newUser(t, "blind", "acquire:jobs/*")
	s, _ := startWithUsers(t, alice, bob, ops, blind)
	ctx := testContext(t)
	as := func(text string) pb.LeaseServiceClient {
		return pb.NewLeaseServiceClient(dialAs(t, s.Address(), text))
	}
	granted, err := as(alices).Acquire(ctx, &pb.AcquireRequest{Resource: "jobs/7", Ttl: "10m", Holder: "worker",
		Metadata: map[string]string{"host": "h1"}})
	require.NoError(t, err)
	_, err = as(alices).Acquire(ctx, &pb.AcquireRequest{Resource: "private", Ttl: "10m"})
	require.NoError(t, err)
	full := func(p *pb.Party) bool {
		return p.Token == granted.Token && p.Nonce != 0 && p.SessionId == granted.SessionId
	}
	hidden := func(p *pb.Party) bool { return p.Token == 0 && p.Nonce == 0 && p.SessionId == "" && p.Client == "" }
	for text, sees := range map[string]func(*pb.Party) bool{alices: full, opss: full, bobs: hidden} {
		inspected, err := as(text).Inspect(ctx, &pb.InspectRequest{Resource: "jobs/7"})
		require.NoError(t, err)
		if p := inspected.Lock.Holders[0]; text == opss {
			require.Contains(t, p.Client, "127.0.0.1:", "the address")
			require.Contains(t, p.Client, "grpc-go/", "the program")
			require.NotEmpty(t, p.Renewed)
		}
		listed, err := as(text).List(ctx, &pb.ListRequest{})
		require.NoError(t, err)
		prefix := ""
		var events []*pb.Event
		for _, request := range []*pb.WatchRequest{{Resource: "jobs/7"}, {Prefix: &prefix}} {
			watch, err := as(text).Watch(ctx, request)
			require.NoError(t, err)
			for {
				e, err := watch.Recv()
				require.NoError(t, err)
				if e.Type == "synced" {
					break
				}
				if e.Resource == "private" {
					require.Equal(t, opss, text, "only ops may read it")
					continue
				}
				events = append(events, e)
			}
		}
		require.Len(t, events, 2)
		locks := 1
		if text == opss {
			locks = 2
		}
		require.Len(t, listed.Locks, locks)
		for _, p := range []*pb.Party{inspected.Lock.Holders[0], listed.Locks[0].Holders[0], events[0].Party,
			events[1].Party} {
			require.True(t, sees(p), "%v", p)
			require.Equal(t, "alice", p.User)
			require.Equal(t, "worker", p.Holder)
			require.Equal(t, "h1", p.Metadata["host"])
			require.NotEmpty(t, p.TtlLeft)
		}
	}
	_, err = as(bobs).Acquire(ctx, &pb.AcquireRequest{Resource: "jobs/7"})
	require.ErrorContains(t, err, "by worker (user alice)")
	require.NotContains(t, err.Error(), "token")
	_, err = as(blinds).Acquire(ctx, &pb.AcquireRequest{Resource: "jobs/7"})
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrHeld)
	require.NotContains(t, err.Error(), "worker")
	_, err = as(bobs).Watch(ctx, &pb.WatchRequest{Resource: "private"})
	require.NoError(t, err)
	_, answer := postAs(t, s.Address(), bobs, "/v1/inspect", `{"resource":"jobs/7"}`)
	require.NotContains(t, fmt.Sprint(answer), granted.SessionId)
	require.NotContains(t, fmt.Sprint(answer), "token")
}

// Pages of a list contain only locks that the caller may read, and are full as long as
// there are more.
func TestListPagesAreFiltered(t *testing.T) {
	t.Parallel()
	alice, alices := newUser(t, "alice", "acquire:*")
	bob, bobs := newUser(t, "bob", "read:b/*")
	s, _ := startWithUsers(t, alice, bob)
	ctx := testContext(t)
	asAlice := pb.NewLeaseServiceClient(dialAs(t, s.Address(), alices))
	for _, name := range []string{"a/1", "a/2", "a/3", "b/1", "b/2", "b/3", "c/1", "c/2"} {
		_, err := asAlice.Acquire(ctx, &pb.AcquireRequest{Resource: name, Ttl: "10m"})
		require.NoError(t, err)
	}
	var names []string
	request := &pb.ListRequest{PageSize: 2}
	for {
		page, err := pb.NewLeaseServiceClient(dialAs(t, s.Address(), bobs)).List(ctx, request)
		require.NoError(t, err)
		for _, lock := range page.Locks {
			names = append(names, lock.Resource)
		}
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			break
		}
		require.Len(t, page.Locks, 2)
	}
	require.Equal(t, []string{"b/1", "b/2", "b/3"}, names)
}

// A removed right ends the open stream of the user, and the next operation is refused.
// Leases stay, and their owner can release them.
func TestRemovedRight(t *testing.T) {
	t.Parallel()
	alice, alices := newUser(t, "alice", "acquire:jobs/*")
	s, users := startWithUsers(t, alice)
	id := engine.NewSessionID()
	acquire := func(nonce uint64) *pb.Operation {
		return &pb.Operation{Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: nonce,
			Resources: []string{fmt.Sprintf("jobs/%d", nonce)}}}}
	}
	first := openStreamAs(t, s.Address(), alices)
	require.Nil(t, first.call(id, openCall()).Error)
	require.Nil(t, first.call(id, acquire(1)).Error)
	alice.Rules = nil
	users.Replace([]auth.User{alice})

	stream := openStreamAs(t, s.Address(), alices)
	require.Nil(t, stream.call(id, &pb.Operation{Call: &pb.Operation_Attach{Attach: &pb.AttachCall{}}}).Error,
		"the session is still hers")
	require.Equal(t, "forbidden", stream.call(id, acquire(2)).Error.GetCode())
	require.Nil(t, stream.call(id, &pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 1}}}).Error)
	var err error
	for err == nil { // what was on its way comes first
		_, err = first.stream.Recv()
	}
	require.ErrorContains(t, err, "user alice was removed or changed", "the stream ends")
}

package server_test

import (
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

// slowConfig is new masters for leases that do not run out while a busy machine
// runs the test. Nothing here waits for the longest of them.
func slowConfig(t testing.TB) redlockadapter.Config {
	t.Helper()
	config := redisConfig(startRedis(t, 3))
	config.MaxTTL = time.Minute
	return config
}

// TestEfficiencyIsListedAndWatched: locks of the efficiency mode are listed and
// watched by prefix, with who waits and how each lease has ended.
func TestEfficiencyIsListedAndWatched(t *testing.T) {
	s, _ := startOn(t, slowConfig(t))
	address, prefix := s.Address(), "fast/"
	next := events(t, address, &pb.WatchRequest{Prefix: &prefix})
	byName := events(t, address, &pb.WatchRequest{Resource: "fast/a"})
	for _, watch := range []func() *pb.Event{next, byName} {
		require.Equal(t, "synced", watch().Type)
	}
	_, first := post(t, address, "/v1/acquire", `{"resource":"fast/a","ttl":"1m","holder":"ann","metadata":{"k":"v"}}`)
	waiting := make(chan map[string]any, 1)
	for _, watch := range []func() *pb.Event{next, byName} {
		e := watch()
		require.Equal(t, []any{"granted", "fast/a", "efficiency", "ann", first["token"]}, []any{e.Type, e.Resource, e.Mode, e.Party.Holder, float64(e.Party.Token)})
	}
	go func() {
		_, second := post(t, address, "/v1/acquire", `{"resource":"fast/a","ttl":"1m","holder":"ben","wait":"1m"}`)
		waiting <- second
	}()
	for _, watch := range []func() *pb.Event{next, byName} {
		e := watch()
		require.Equal(t, []any{"waiting", "ben", int32(1)}, []any{e.Type, e.Party.Holder, e.Place})
	}
	_, inspected := post(t, address, "/v1/inspect", `{"resource":"fast/a"}`)
	require.Contains(t, fmt.Sprint(inspected), "holder:ben")

	_, _ = post(t, address, "/v1/acquire", `{"resource":"a-slow-one"}`)
	_, page := post(t, address, "/v1/list", `{"pageSize":1}`)
	require.Contains(t, fmt.Sprint(page["locks"]), "a-slow-one")
	require.Equal(t, "a-slow-one", page["nextPageToken"])
	_, page = post(t, address, "/v1/list", `{"pageToken":"a-slow-one"}`)
	require.Contains(t, fmt.Sprint(page["locks"]), "fast/a")
	require.Contains(t, fmt.Sprint(page["locks"]), "holder:ann")
	require.Contains(t, fmt.Sprint(page["locks"]), "waiters:[map[holder:ben")
	require.Nil(t, page["nextPageToken"])

	post(t, address, "/v1/release", fmt.Sprintf(`{"resource":"fast/a","token":%v}`, first["token"]))
	second := <-waiting
	for _, watch := range []func() *pb.Event{next, byName} {
		require.Equal(t, "released", watch().Type)
		require.Eventually(t, func() bool { return watch().Type == "granted" }, patience, time.Millisecond) // perhaps after "cancelled"
	}
	code, answer := post(t, address, "/v1/break", fmt.Sprintf(`{"resource":"fast/a","token":%v}`, second["token"]))
	require.Equal(t, http.StatusOK, code, answer)
	for _, watch := range []func() *pb.Event{next, byName} {
		require.Equal(t, "broken", watch().Type)
	}
	_, third := post(t, address, "/v1/acquire", `{"resource":"fast/a","ttl":"1s"}`)
	for _, watch := range []func() *pb.Event{next, byName} {
		require.Equal(t, third["token"], float64(watch().Party.Token))
		require.Equal(t, "expired", watch().Type)
	}
	_, page = post(t, address, "/v1/list", `{"prefix":"fast/"}`)
	require.Empty(t, page["locks"])
}

// TestFoundAgainAfterManyTries: what another member was granted, at a later try,
// is found by the same nonce.
func TestFoundAgainAfterManyTries(t *testing.T) {
	s, id, token := grantedElsewhere(t)
	code, found := post(t, s.Address(), "/v1/acquire",
		fmt.Sprintf(`{"resource":"fast/a","sessionId":%q,"nonce":5,"holder":"ann","metadata":{"k":"v"}}`, id))
	require.Equal(t, http.StatusOK, code, found)
	require.Equal(t, float64(token), found["token"])
}

// TestFoundAgainAfterManyTriesIsReleased: it can be released by its token.
func TestFoundAgainAfterManyTriesIsReleased(t *testing.T) {
	s, _, token := grantedElsewhere(t)
	_, released := post(t, s.Address(), "/v1/release", fmt.Sprintf(`{"resource":"fast/a","token":%d}`, token))
	require.Equal(t, true, released["released"])
	_, inspected := post(t, s.Address(), "/v1/inspect", `{"resource":"fast/a"}`)
	require.NotContains(t, fmt.Sprint(inspected), "holders")
}

// grantedElsewhere is a server, a session that it knows, and the token that the
// session was granted on fast/a with nonce 5, by the engine of another member and
// not at its first try.
func grantedElsewhere(t *testing.T) (*server.Server, lease.SessionID, fencing.Token) {
	t.Helper()
	config := slowConfig(t)
	s, _ := startOn(t, config)
	engine, err := redlockadapter.New(patient(t), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close(patient(t))) })
	_, opened := post(t, s.Address(), "/v1/open-session", `{"ttl":"1m"}`)
	id, err := lease.ParseSessionID(opened["sessionId"].(string))
	require.NoError(t, err)
	mine, err := engine.Open(patient(t), lease.SessionConfig{ID: id, TTL: time.Minute})
	require.NoError(t, err)
	for nonce := lease.Nonce(1); nonce < 5; nonce++ {
		_, err := mine.Acquire(patient(t), lease.Request{Nonce: nonce, Resources: []fencing.Resource{"fast/b"}})
		require.NoError(t, err)
		require.NoError(t, mine.Release(patient(t), nonce))
	}
	_, other := post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a","ttl":"1m"}`)
	request := lease.Request{Nonce: 5, Resources: []fencing.Resource{"fast/a"}, Holder: "ann", Metadata: map[string]string{"k": "v"}}
	queued, granted := make(chan struct{}), make(chan lease.Grant, 1)
	request.Wait, request.Queued = true, func() { close(queued) }
	go func() {
		grant, err := mine.Acquire(patient(t), request)
		if err != nil {
			t.Error(err)
		}
		granted <- grant
	}()
	<-queued // it has tried
	post(t, s.Address(), "/v1/release", fmt.Sprintf(`{"resource":"fast/a","token":%v}`, other["token"]))
	grant := <-granted
	_, err = mine.Renew(patient(t))
	require.NoError(t, err)
	return s, id, grant.Token
}

// TestAttachAsksForNothingNew: a client that comes to another member says what it
// held. What Redis does not have any more is lost: were it asked for again, the
// member would hold a lock, with another token, of which the client knows nothing.
func TestAttachAsksForNothingNew(t *testing.T) {
	s, id, token := grantedElsewhere(t)
	stream, err := pb.NewLeaseServiceClient(dial(t, s.Address())).Session(patient(t))
	require.NoError(t, err)
	held := []*pb.AcquireCall{{Nonce: 5, Resources: []string{"fast/a"}}, {Nonce: 6, Resources: []string{"fast/gone"}, Wait: true}}
	require.NoError(t, stream.Send(&pb.SessionRequest{Operations: []*pb.Operation{
		{Id: 1, Session: id[:], Call: &pb.Operation_Attach{Attach: &pb.AttachCall{TtlNanos: int64(time.Minute), Held: held}}}}}))
	message, err := stream.Recv()
	require.NoError(t, err)
	require.Nil(t, message.Answers[0].Error)
	require.Len(t, message.Answers[0].Holds, 1)
	require.Equal(t, [2]uint64{5, uint64(token)}, [2]uint64{message.Answers[0].Holds[0].Nonce, message.Answers[0].Holds[0].Token})
	_, inspected := post(t, s.Address(), "/v1/inspect", `{"resource":"fast/gone"}`)
	require.NotContains(t, fmt.Sprint(inspected), "holders")
}

// TestHeldSaysByWhom: the error of a lock that is held names the holder.
func TestHeldSaysByWhom(t *testing.T) {
	s, _ := startOn(t, slowConfig(t))
	for _, name := range []string{"slow/a", "fast/a"} {
		_, granted := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"ttl":"1m","holder":"ann"}`, name))
		code, refused := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"ttl":"1m"}`, name))
		require.Equal(t, http.StatusConflict, code)
		require.Contains(t, refused["message"], fmt.Sprintf("%q by ann with token %v", name, granted["token"]))
	}
}

// TestReleaseMeetsAFailover: a lease of the efficiency mode that is given back
// while its leader fails is free when Release returns, not when its time is up.
func TestReleaseMeetsAFailover(t *testing.T) {
	c := startCluster(t, 3, startRedis(t, 3)...)
	setMode(t, c.leader().spec.API, "fast/", lease.Efficiency)
	session, err := client(t, c.endpoints()).Open(patient(t), lease.SessionConfig{ID: lease.NewSessionID(), TTL: redisMaxTTL})
	require.NoError(t, err)
	_, err = session.Acquire(patient(t), lease.Request{Nonce: 1, Resources: []fencing.Resource{"fast/a"}, Holder: "h"})
	require.NoError(t, err)
	require.Equal(t, 1, c.killLeader(nil))
	require.NoError(t, session.Release(patient(t), 1))
	status, err := client(t, c.endpoints()).Inspect(patient(t), "fast/a")
	require.NoError(t, err)
	require.Empty(t, status.Holders)
}

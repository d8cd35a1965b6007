package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
)

// suiteTTL is the TTL of the conformance suite on real members.
const suiteTTL = engine.DefaultTTL

// TestThreeMembers runs the tests that do not disturb the members on one cluster with
// Redis nodes.
func TestThreeMembers(t *testing.T) {
	t.Parallel()
	c := startClusterInBothModes(t, 3, memberSpec{Redis: fleetOf(startRedis(t, 3), longTTL), Heartbeat: steadyHeartbeat})
	for name, test := range map[string]func(*testing.T, *cluster){
		"followers":            testFollowers,
		"any member":           testAnyMember,
		"watch in Redis":       testWatchInRedis,
		"released elsewhere":   testReleasedElsewhere,
		"correctness conforms": testCorrectnessConforms,
		"sign":                 testSignElsewhere,
		"losses":               testWatchSessionElsewhere,
		"repeated":             testRepeatElsewhere,
		"sessions":             testSessionsElsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

func testCorrectnessConforms(t *testing.T, c *cluster) {
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		t.Parallel()
		return leasetest.Subject{
			Backend: func() engine.Backend { return newClient(t, c.endpoints()) },
			Mode:    engine.Correctness,
			TTL:     suiteTTL,
			FIFO:    true,
		}
	})
}

// Every member streams the losses of a session, also a member that has never seen it.
func testWatchSessionElsewhere(t *testing.T, c *cluster) {
	for i, m := range c.members {
		other := c.members[(i+1)%len(c.members)].spec.API
		id := mustPost(t, m.spec.API, "/v1/open-session", `{"ttl":"10m"}`)["sessionId"]
		held := mustPost(t, m.spec.API, "/v1/acquire",
			fmt.Sprintf(`{"resource":"watched/%d","sessionId":%q,"nonce":7}`, i, id))
		next := watchSession(t, other, id)
		require.Equal(t, fmt.Sprintf(`{"type":"synced","tokens":[%.0f]}`, held["token"]), next())
		mustPost(t, m.spec.API, "/v1/break", leaseName(held))
		require.Contains(t, next(), fmt.Sprintf(`"nonce":7,"token":%.0f,"error":{"code":"taken"`, held["token"]))
	}
}

// In efficiency mode a copy of an acquire, sent to another member, returns the same lease instead of waiting for
// it. A third member changes its TTL and metadata.
func testRepeatElsewhere(t *testing.T, c *cluster) {
	const call = `{"resource":"fast/repeated","ttl":"30s","attempt":"0123456789abcdef","metadata":{"done":"0%"}}`
	first := mustPost(t, c.members[0].spec.API, "/v1/acquire", call)
	waits := strings.Replace(call, "{", `{"wait":"1h",`, 1)
	require.Equal(t, first["token"], mustPost(t, c.members[1].spec.API, "/v1/acquire", waits)["token"])
	renewal := strings.Replace(leaseName(first), "{", `{"ttl":"1m","metadata":{"done":"40%"},`, 1)
	require.Equal(t, "1m0s", mustPost(t, c.members[2].spec.API, "/v1/renew", renewal)["ttl"])
	shown := fmt.Sprint(mustPost(t, c.members[0].spec.API, "/v1/inspect", `{"resource":"fast/repeated"}`))
	require.Contains(t, shown, "metadata:map[done:40%]")
	another := strings.Replace(call, "abcdef", "fedcba", 1)
	code, refused := post(t, c.members[1].spec.API, "/v1/acquire", another)
	require.Equal(t, http.StatusConflict, code, refused)
	require.Equal(t, first["token"], refused["heldBy"].(map[string]any)["token"])
	mustPost(t, c.members[2].spec.API, "/v1/release", leaseName(first))
	require.Greater(t, mustPost(t, c.members[1].spec.API, "/v1/acquire", another)["token"], first["token"])
}

// A follower answers a call that names a session with the bytes of the leader, also an invalid one.
func testSessionsElsewhere(t *testing.T, c *cluster) {
	follower, leader := c.follower().spec.API, c.awaitLeader().spec.API
	answer := func(address, path, body string) string {
		response, err := http.DefaultClient.Do(newPost(t, address, path, body))
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.Status + " " + response.Header.Get("Content-Type") + " " + string(text)
	}
	const id, none, redis = "0123456789abcdef0123456789abcdef", "00000000000000000000000000000000",
		"65666600000000000000000000000000"
	for _, call := range []struct{ path, body string }{
		{"open-session", `{"sessionId":"` + id + `","ttl":"10m"}`},
		{"open-session", `{"sessionId":"x"}`}, {"open-session", `{"ttl":"0s"}`}, {"open-session", `{"ttl":"1ms"}`},
		{"open-session", `{"sessionId":"` + id + `","ttl":"20m"}`},
		{"acquire", `{"resource":"in/a<b>","sessionId":"` + id + `","nonce":4294967296}`},
		{"acquire", `{"resource":"in/a","sessionId":"` + id + `","ttl":"1s"}`},
		{"acquire", `{"resource":"in/a","sessionId":"` + id + `","attempt":"0123456789abcdef"}`},
		{"acquire", `{"resource":"in/a","sessionId":"` + id + `","shared":true,"permits":2}`},
		{"acquire", `{"resource":"in/a","sessionId":"x"}`}, {"acquire", `{"sessionId":"` + id + `"}`},
		{"acquire", `{"resource":"in/a","sessionId":"` + id + `","wait":"soon"}`},
		{"acquire", `{"resource":"in/a","sessionId":"` + none + `","nonce":1}`},
		{"acquire", `{"resource":"fast/in","sessionId":"` + id + `","nonce":1}`},
		{"acquire", `{"resource":"in/a","sessionId":"` + redis + `","nonce":1}`},
		{"renew", `{"sessionId":"` + none + `"}`}, {"renew", `{"sessionId":"` + id + `","metadata":{"a":"b"}}`},
		{"release", `{"sessionId":"` + id + `","nonce":99}`}, {"release", `{"sessionId":"` + id + `"}`},
		{"release", `{"sessionId":"` + none + `","nonce":1}`},
		{"close-session", `{}`}, {"close-session", `{"sessionId":"` + none + `"}`},
	} {
		want := answer(leader, "/v1/"+call.path, call.body)
		require.Equal(t, want, answer(follower, "/v1/"+call.path, call.body), "%s %s", call.path, call.body)
	}
	held := mustPost(t, follower, "/v1/acquire", `{"resource":"in/a","sessionId":"`+id+`","nonce":1,"wait":"1m"}`)
	require.Equal(t, []any{held["token"]}, mustPost(t, leader, "/v1/renew", `{"sessionId":"`+id+`"}`)["tokens"])
	require.Equal(t, true, mustPost(t, follower, "/v1/release", `{"sessionId":"`+id+`","nonce":1}`)["released"])
	mustPost(t, follower, "/v1/close-session", `{"sessionId":"`+id+`"}`)
}

// A follower names the leader to gRPC clients, and forwards HTTP requests to it.
func testFollowers(t *testing.T, c *cluster) {
	follower, leader := c.follower(), c.awaitLeader()
	_, err := pb.NewLeaseServiceClient(dial(t, follower.spec.API)).Acquire(testContext(t),
		&pb.AcquireRequest{Resource: "forwarded"})
	err = wire.FromStatus(err)
	require.ErrorIs(t, err, engine.ErrUnavailable, "nothing has happened")
	var notLeader *wire.NotLeaderError
	require.ErrorAs(t, err, &notLeader)
	require.Equal(t, leader.spec.API, notLeader.Leader)

	mustPost(t, follower.spec.API, "/v1/acquire", `{"resource":"forwarded","ttl":"10m","holder":"through a follower"}`)
	code, answer := post(t, leader.spec.API, "/v1/acquire", `{"resource":"forwarded"}`)
	require.Equal(t, http.StatusConflict, code)
	require.Equal(t, "held", answer["code"])

	response, err := http.DefaultClient.Do(newPost(t, follower.spec.API, "/v1/watch", `{"resource":"forwarded"}`))
	require.NoError(t, err)
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	require.NoError(t, err, "the follower passes each event on at once")
	require.Contains(t, line, "through a follower")

	request := newPost(t, follower.spec.API, "/v1/inspect", `{"resource":"forwarded"}`)
	request.Header.Set("Leased-Forwarded", "n9")
	response, err = http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode, "a request is forwarded once")
}

// Any member shows, renews, breaks and releases a lease in efficiency mode that
// another one granted. A set is renewed as a whole.
func testAnyMember(t *testing.T, c *cluster) {
	follower := c.follower().spec.API
	for _, granter := range c.members {
		for _, other := range c.members {
			t.Run(granter.spec.ID+" grants, "+other.spec.ID+" continues", func(t *testing.T) {
				useElsewhere(t, granter.spec.API, other.spec.API)
			})
		}
	}
	t.Run("gRPC", func(t *testing.T) {
		granted, err := pb.NewLeaseServiceClient(dial(t, follower)).Acquire(testContext(t),
			&pb.AcquireRequest{Resource: "fast/grpc"})
		require.NoError(t, err, "a follower does not redirect")
		released, err := pb.NewLeaseServiceClient(dial(t, c.awaitLeader().spec.API)).Release(testContext(t),
			&pb.ReleaseRequest{Resource: "fast/grpc", Token: granted.Token})
		require.NoError(t, err)
		require.True(t, released.Released)
	})
	t.Run("lost answer", func(t *testing.T) { releaseUnansweredGrant(t, c.members[0].spec.API, c.members[1].spec.API) })
	t.Run("stream", func(t *testing.T) { useStream(t, follower) })
	t.Run("list of both modes", func(t *testing.T) {
		slow := mustPost(t, follower, "/v1/acquire", `{"resource":"fasu/listed","ttl":"1m"}`)
		fast := mustPost(t, follower, "/v1/acquire", `{"resource":"fast/listed","ttl":"1m"}`)
		page := mustPost(t, follower, "/v1/list", `{"prefix":"fas","pageSize":1}`)
		require.Contains(t, fmt.Sprint(page["locks"]), "fast/")
		page = mustPost(t, follower, "/v1/list", `{"prefix":"fas","pageToken":"fast/z"}`)
		require.Contains(t, fmt.Sprint(page["locks"]), "fasu/listed")
		require.Nil(t, page["nextPageToken"])
		require.NotContains(t, fmt.Sprint(mustPost(t, follower, "/v1/list", `{"mode":"efficiency"}`)), "fasu/listed")
		require.NotContains(t, fmt.Sprint(mustPost(t, follower, "/v1/list", `{"mode":"correctness"}`)), "fast/listed")
		mustPost(t, follower, "/v1/release", leaseName(slow))
		mustPost(t, follower, "/v1/release", leaseName(fast))
	})
}

// useElsewhere acquires a set at one member and uses it at another.
func useElsewhere(t *testing.T, granter, other string) {
	set := mustPost(t, granter, "/v1/acquire",
		`{"resources":["fast/x","fast/y"],"ttl":"1m","holder":"ann","metadata":{"k":"v"}}`)
	for _, name := range []string{"fast/x", "fast/y"} {
		inspected := fmt.Sprint(mustPost(t, other, "/v1/inspect", fmt.Sprintf(`{"resource":%q}`, name)))
		require.Contains(t, inspected, "holder:ann")
		require.Contains(t, inspected, "k:v")
		renewed := mustPost(t, other, "/v1/renew", fmt.Sprintf(`{"resource":%q,"token":%.0f}`, name, set["token"]))
		require.Equal(t, []any{set["token"]}, renewed["tokens"])
		require.Equal(t, "1m0s", renewed["ttl"])
		code, refused := post(t, granter, "/v1/acquire", fmt.Sprintf(`{"resource":%q}`, name))
		require.Equal(t, http.StatusConflict, code, refused)
	}
	code, answer := post(t, other, "/v1/renew", fmt.Sprintf(`{"resource":"fast/x","token":%.0f}`,
		set["token"].(float64)+1))
	require.Equal(t, http.StatusNotFound, code, "this token was not granted: %v", answer)
	listed := fmt.Sprint(mustPost(t, other, "/v1/list", `{"mode":"efficiency","prefix":"fast/"}`))
	require.Contains(t, listed, "fast/x")
	require.Contains(t, listed, "fast/y")
	require.Equal(t, true, mustPost(t, other, "/v1/release", leaseName(set))["released"])

	next := mustPost(t, granter, "/v1/acquire", `{"resource":"fast/y","ttl":"1m"}`)
	require.Greater(t, next["token"], set["token"])
	mustPost(t, other, "/v1/break", leaseName(next))
	code, answer = post(t, granter, "/v1/renew", leaseName(next))
	require.Equal(t, http.StatusNotFound, code, answer)
}

// useStream acquires, renews and releases leases on the stream of a member.
func useStream(t *testing.T, address string) {
	id, names := engine.NewSessionID(), []fencing.Resource{"fast/stream"}
	session, err := newClient(t, []string{address}).Efficiency().Open(testContext(t),
		engine.SessionConfig{ID: id, TTL: longTTL})
	require.NoError(t, err)
	var last fencing.Token
	for nonce := engine.Nonce(1); nonce <= 3; nonce++ {
		grant, err := session.Acquire(testContext(t), engine.Request{Nonce: nonce, Resources: names})
		require.NoError(t, err)
		require.True(t, grant.Token.Newer(last))
		last = grant.Token
		held := engine.Held{Name: grant.Name, Session: id, Nonce: nonce, Resources: names, Token: grant.Token, TTL: longTTL}
		extended, err := session.Renew(testContext(t), held)
		require.NoError(t, err)
		require.Equal(t, []engine.Nonce{nonce}, extended)
		require.NoError(t, session.Release(testContext(t), held))
	}
}

// releaseUnansweredGrant releases an attempt whose client did not get the answer, at
// another member. That member has to find the lease. It also shows that a lease with
// too long a TTL is not renewed.
func releaseUnansweredGrant(t *testing.T, granter, other string) {
	id := engine.NewSessionID()
	first, second := openStream(t, granter, id), openStream(t, other, id)
	acquire := &pb.AcquireCall{Nonce: 7, Resources: []string{"fast/lost"}, TtlNanos: int64(longTTL)}
	answer, code := first.do(&pb.Operation{Call: &pb.Operation_Acquire{Acquire: acquire}})
	require.Empty(t, code)
	held := &pb.HeldLease{Nonce: 7, Name: answer.Name, Resources: acquire.Resources, Token: answer.Token,
		TtlNanos: int64(2 * longTTL)}
	_, code = second.do(&pb.Operation{Call: &pb.Operation_Renew{Renew: &pb.RenewCall{Leases: []*pb.HeldLease{held}}}})
	require.Equal(t, "invalid", code)
	unnamed := &pb.HeldLease{Nonce: 7, Resources: acquire.Resources, TtlNanos: int64(longTTL)}
	held.TtlNanos = int64(longTTL)
	answer, code = second.do(&pb.Operation{Call: &pb.Operation_Renew{
		Renew: &pb.RenewCall{Leases: []*pb.HeldLease{unnamed, held}}}})
	require.Empty(t, code)
	require.Len(t, answer.Holds, 1, "a lease that is refused does not stop the others")
	_, code = second.do(&pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 6, Lease: unnamed}}})
	require.Empty(t, code)
	require.NotContains(t, fmt.Sprint(mustPost(t, other, "/v1/inspect", `{"resource":"fast/lost"}`)), "holders:[]",
		"another attempt holds it")
	_, code = second.do(&pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 7, Lease: unnamed}}})
	require.Empty(t, code)
	require.Contains(t, fmt.Sprint(mustPost(t, granter, "/v1/inspect", `{"resource":"fast/lost"}`)), "holders:[]")
}

// A watch at one member reports changes that others make in efficiency mode, with the
// waiters and the reason why each lease ended.
func testWatchInRedis(t *testing.T, c *cluster) {
	address, other := c.members[0].spec.API, c.members[1].spec.API
	prefix := "fast/w3"
	for _, watch := range []struct {
		name, lock string
		request    *pb.WatchRequest
		at         string
	}{
		{"a lock at a follower", "fast/w1", &pb.WatchRequest{Resource: "fast/w1"}, c.follower().spec.API},
		{"a prefix at a follower", "fast/w3", &pb.WatchRequest{Prefix: &prefix}, c.follower().spec.API},
		{"all locks at the leader", "fast/w2", &pb.WatchRequest{Prefix: new(string)}, c.awaitLeader().spec.API},
	} {
		t.Run(watch.name, func(t *testing.T) {
			t.Parallel()
			next := watchEvents(t, watch.at, watch.request)
			until := func(holder string, kinds ...string) *pb.Event {
				for {
					e := next()
					if slices.Contains(kinds, e.Type) && e.GetParty().GetHolder() == holder &&
						(e.Resource == watch.lock || e.Type == "synced") {
						return e
					}
				}
			}
			lock := func(rest string) string { return fmt.Sprintf(`{"resource":%q,`, watch.lock) + rest }
			until("", "synced")
			first := mustPost(t, address, "/v1/acquire", lock(`"ttl":"1m","holder":"ann"}`))
			e := until("ann", "granted")
			require.Equal(t, []any{"efficiency", first["token"]}, []any{e.Mode, float64(e.Party.Token)})
			waiting := postAsync(t, other, "/v1/acquire", lock(`"ttl":"1m","holder":"ben","wait":"2m"}`))
			until("ben", "waiting")
			mustPost(t, address, "/v1/release", leaseName(first))
			until("ann", "released", "ended") // retries of a waiter may overwrite the reason on the nodes
			second := <-waiting
			until("ben", "granted")
			mustPost(t, address, "/v1/break", leaseName(second))
			until("ben", "broken")
			third := mustPost(t, address, "/v1/acquire", lock(`"ttl":"1m","holder":"dan"}`))
			until("dan", "granted")
			mustPost(t, address, "/v1/release", leaseName(third))
			until("dan", "released")
			mustPost(t, address, "/v1/acquire", lock(`"ttl":"10s","holder":"cat"}`))
			until("cat", "granted")
			until("cat", "expired")
		})
	}
}

// A waiter at the member that granted a lease is served when the lease is released or
// broken through another member.
func testReleasedElsewhere(t *testing.T, c *cluster) {
	granter, other := c.members[0].spec.API, c.members[1].spec.API
	for _, end := range []string{"/v1/release", "/v1/break"} {
		t.Run(end, func(t *testing.T) {
			held := mustPost(t, granter, "/v1/acquire", `{"resource":"fast/e","ttl":"1m"}`)
			waiting := postAsync(t, granter, "/v1/acquire", `{"resource":"fast/e","ttl":"1m","holder":"ben","wait":"2m"}`)
			eventually(t, "the other member sees the waiter", func() bool {
				return strings.Contains(fmt.Sprint(mustPost(t, other, "/v1/inspect", `{"resource":"fast/e"}`)), "holder:ben")
			})
			mustPost(t, other, end, leaseName(held))
			next := <-waiting
			require.Greater(t, next["token"], held["token"], next)
			mustPost(t, other, "/v1/release", leaseName(next))
		})
	}
}

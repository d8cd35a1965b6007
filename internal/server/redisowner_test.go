package server_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

// awaitLease acquires a lock in a mode, as soon as it has that mode.
func awaitLease(t testing.TB, address, text, lock, mode string) (granted map[string]any) {
	t.Helper()
	eventually(t, lock+" is granted in "+mode+" mode", func() bool {
		var code int
		code, granted = postAs(t, address, text, "/v1/acquire",
			fmt.Sprintf(`{"resource":%q,"ttl":"1m","mode":%q,"holder":"worker"}`, lock, mode))
		return code == http.StatusOK
	})
	return granted
}

// A lease in efficiency mode belongs to the user that acquired it through a member:
// others cannot renew, release or invent it, do not see its token, and may break it only
// with the right. The same holds before and after a change of the lock's mode.
func TestLeaseInRedisBelongsToItsUser(t *testing.T) {
	t.Parallel()
	alice, alices := newUser(t, "alice.w@example.org", "acquire:*", "read:*")
	bob, bobs := newUser(t, "bob", "acquire:fast/*", "read:*")
	ops, opss := newUser(t, "ops", "policy:*", "cluster", "break:*", "read:*")
	users := auth.NewUsers([]auth.User{alice, bob, ops})
	nodes := startRedis(t, 3)
	s := startServer(t, func(c *server.Config) { c.Users, c.Redis = users, fleetOf(nodes, longTTL) })
	address := s.Address()

	for _, mode := range []string{"efficiency", "correctness", "efficiency"} {
		code, answer := postAs(t, address, opss, "/v1/set-policy",
			fmt.Sprintf(`{"policy":{"prefix":"fast/","mode":%q},"now":true}`, mode))
		require.Equal(t, http.StatusOK, code, "%v", answer)
		granted := awaitLease(t, address, alices, "fast/1", mode)
		name := leaseName(granted)
		code, answer = postAs(t, address, bobs, "/v1/renew", name)
		require.Equal(t, http.StatusNotFound, code, "%s: %v", mode, answer)
		_, answer = postAs(t, address, bobs, "/v1/release", name)
		require.Equal(t, false, answer["released"], mode)
		code, answer = postAs(t, address, bobs, "/v1/break", name)
		require.Equal(t, http.StatusForbidden, code, "%s: %v", mode, answer)
		for text, sees := range map[string]bool{alices: true, bobs: false, opss: true} {
			_, answer := postAs(t, address, text, "/v1/inspect", `{"resource":"fast/1"}`)
			seen := mustJSON(t, answer)
			require.Contains(t, seen, `"user":"alice.w@example.org"`, mode)
			require.Contains(t, seen, `"holder":"worker"`)
			for _, field := range []string{`"token"`, `"sessionId"`, `"nonce"`} {
				require.Equal(t, sees, strings.Contains(seen, field), "%s: %s", mode, seen)
			}
		}
		code, answer = postAs(t, address, alices, "/v1/renew", name)
		require.Equal(t, http.StatusOK, code, "%s: %v", mode, answer)
		_, answer = postAs(t, address, alices, "/v1/release", name)
		require.Equal(t, true, answer["released"], mode)
		broken := awaitLease(t, address, alices, "fast/1", mode)
		code, answer = postAs(t, address, opss, "/v1/break", leaseName(broken))
		require.Equal(t, http.StatusOK, code, "%s: %v", mode, answer)
	}
	testTriedTokens(t, address, alices, bobs, nodes)
	testInventedLeases(t, address, alices, bobs, users, alice)
}

// testTriedTokens checks that a user does not learn the token of another one by trying, while it cannot be told whether
// she holds the lock.
func testTriedTokens(t *testing.T, address, alices, bobs string, nodes []*testserver.RedisServer) {
	name := leaseName(awaitLease(t, address, alices, "fast/bare", "efficiency"))
	var first *redis.Client
	var record string
	for _, node := range nodes {
		client := redis.NewClient(&redis.Options{Addr: node.Addr})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		eventually(t, "the lease is on all nodes", func() bool {
			keys, err := client.Keys(testContext(t), "*:lock:fast/bare").Result()
			if node == nodes[0] && len(keys) == 1 {
				first, record = client, keys[0]
			}
			return err == nil && len(keys) == 1
		})
	}
	require.NoError(t, first.Del(testContext(t), record).Err())
	nodes[1].Kill()
	asAnotherAttempt(t, nodes[2], "fast/bare")
	code, answer := postAs(t, address, bobs, "/v1/renew", name)
	require.Equal(t, http.StatusNotFound, code, "%v", answer)
	right := regexp.MustCompile(`token \d+`).ReplaceAllString(fmt.Sprint(answer), "token N")
	_, answer = postAs(t, address, bobs, "/v1/renew", `{"resource":"fast/bare","token":99}`)
	wrong := regexp.MustCompile(`token \d+`).ReplaceAllString(fmt.Sprint(answer), "token N")
	require.Equal(t, wrong, right)
	code, answer = postAs(t, address, alices, "/v1/renew", name)
	require.Equal(t, http.StatusServiceUnavailable, code, "%v", answer)
}

// asAnotherAttempt gives the attempt that holds a lock on a node another name: the member does not know the attempt.
func asAnotherAttempt(t *testing.T, node *testserver.RedisServer, lock string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: node.Addr})
	defer client.Close()
	keys, err := client.Keys(testContext(t), "*:lock:"+lock).Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	name, err := client.HGet(testContext(t), keys[0], "nonce").Result()
	require.NoError(t, err)
	parts := strings.SplitN(name, ".", 4) // its third part is random
	parts[2] = "another"
	require.NoError(t, client.HSet(testContext(t), keys[0], "nonce", strings.Join(parts, ".")).Err())
}

// testInventedLeases checks the leases that a client names on a stream.
func testInventedLeases(t *testing.T, address, alices, bobs string, users *auth.Users, alice auth.User) {
	id := engine.NewSessionID()
	hers, his := openStreamAs(t, address, alices), openStreamAs(t, address, bobs)
	acquire := &pb.AcquireCall{Nonce: 7, Resources: []string{"fast/2"}, TtlNanos: int64(longTTL)}
	answer := hers.call(id, &pb.Operation{Call: &pb.Operation_Acquire{Acquire: acquire}})
	require.Nil(t, answer.Error)
	require.Equal(t, "alice.w@example.org", redlockadapter.UserOf(answer.Name))
	held := &pb.HeldLease{Nonce: 7, Name: answer.Name, Resources: acquire.Resources, Token: answer.Token,
		TtlNanos: int64(longTTL)}
	renew := &pb.Operation{Call: &pb.Operation_Renew{Renew: &pb.RenewCall{Leases: []*pb.HeldLease{held}}}}
	release := &pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 7, Lease: held}}}
	unnamed := &pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 7, Lease: &pb.HeldLease{Nonce: 7,
		Resources: acquire.Resources}}}}
	require.Equal(t, "forbidden", his.call(id, renew).Error.GetCode())
	require.Equal(t, "forbidden", his.call(id, release).Error.GetCode())
	require.Nil(t, his.call(id, unnamed).Error, "there is no such lease of his")
	renewed := hers.call(id, renew)
	require.Nil(t, renewed.Error)
	require.Empty(t, renewed.Lost, "she still holds it")

	// He invents a lease of his own on a lock that he may not acquire.
	invented := &pb.HeldLease{Nonce: 7, Name: strings.TrimSuffix(answer.Name, "alice.w@example.org") + "bob",
		Resources: []string{"slow/1"}, Token: 1, TtlNanos: int64(longTTL)}
	requireLost(t, his, id, invented)
	require.Equal(t, "not-held", his.call(id,
		&pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 7, Lease: invented}}}).Error.GetCode())

	// The release of a lease that he invents on a lock that he may acquire does not end hers.
	for _, token := range []uint64{answer.Token, answer.Token + 1, 1 << 52} {
		invented := &pb.HeldLease{Nonce: 7, Name: strings.TrimSuffix(answer.Name, "alice.w@example.org") + "bob",
			Resources: []string{"fast/2"}, Token: token,
			TtlNanos: int64(longTTL)}
		require.Nil(t, his.call(id, &pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 7,
			Lease: invented}}}).Error)
		renewed := hers.call(id, renew)
		require.Nil(t, renewed.Error)
		require.Empty(t, renewed.Lost, "she still holds it")
	}

	// What she invents on a lock that she may acquire does not enter its history.
	invented = &pb.HeldLease{Nonce: 7, Name: strings.Replace(answer.Name, ".7.", ".7.x", 1), Resources: []string{"fast/3"},
		Token: 1, TtlNanos: int64(longTTL), Holder: "nobody"}
	require.Nil(t, hers.call(id, &pb.Operation{Call: &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: 7,
		Lease: invented}}}).Error)
	events, err := pb.NewLeaseServiceClient(dialAs(t, address, alices)).History(testContext(t),
		&pb.HistoryRequest{Resource: "fast/3"})
	require.NoError(t, err)
	require.Empty(t, events.Events)

	// She loses the right to acquire it, and can still release it.
	alice.Rules = nil
	users.Replace([]auth.User{alice})
	hers = openStreamAs(t, address, alices)
	require.Equal(t, "forbidden", hers.call(id,
		&pb.Operation{Call: &pb.Operation_Acquire{Acquire: acquire}}).Error.GetCode())
	require.Nil(t, hers.call(id, release).Error)
	require.Equal(t, "not-held", hers.call(id, release).Error.GetCode())
}

// renewLease renews a lease in efficiency mode that the client names.
func renewLease(c *streamClient, id engine.SessionID, held *pb.HeldLease) *pb.Answer {
	return c.call(id, &pb.Operation{Call: &pb.Operation_Renew{Renew: &pb.RenewCall{Leases: []*pb.HeldLease{held}}}})
}

// requireLost renews a lease that does not exist.
func requireLost(t *testing.T, c *streamClient, id engine.SessionID, held *pb.HeldLease) {
	t.Helper()
	answer := renewLease(c, id, held)
	require.Nil(t, answer.Error)
	require.Len(t, answer.Lost, 1, "%v", held)
	require.Equal(t, "not-held", answer.Lost[0].Lost.GetCode())
}

// A renewal is never a grant: a user who may acquire a lock cannot take it with a token
// that another user had, or with one that nobody had, and cannot change the token or the
// locks of a lease. A lease that exists is renewed on any stream of its user.
func TestInventedRenewalIsNoGrant(t *testing.T) {
	t.Parallel()
	alice, alices := newUser(t, "alice", "acquire:*", "read:*")
	bob, bobs := newUser(t, "bob", "acquire:fast/*", "read:*")
	ops, opss := newUser(t, "ops", "policy:*", "cluster", "break:*", "read:*")
	s := startServer(t, func(c *server.Config) {
		c.Users, c.Redis = auth.NewUsers([]auth.User{alice, bob, ops}), fleetOf(startRedis(t, 3), longTTL)
	})
	address := s.Address()
	code, answer := postAs(t, address, opss, "/v1/set-policy",
		`{"policy":{"prefix":"fast/","mode":"efficiency"},"now":true}`)
	require.Equal(t, http.StatusOK, code, "%v", answer)
	granted := awaitLease(t, address, alices, "fast/1", "efficiency")
	_, answer = postAs(t, address, alices, "/v1/release", leaseName(granted))
	require.Equal(t, true, answer["released"])

	id, his := engine.NewSessionID(), openStreamAs(t, address, bobs)
	acquire := &pb.AcquireCall{Nonce: 7, Resources: []string{"fast/2", "fast/3"}, TtlNanos: int64(longTTL)}
	own := his.call(id, &pb.Operation{Call: &pb.Operation_Acquire{Acquire: acquire}})
	require.Nil(t, own.Error)
	lease := func(token uint64, locks ...string) *pb.HeldLease {
		return &pb.HeldLease{Nonce: 7, Name: own.Name, Resources: locks, Token: token, TtlNanos: int64(longTTL)}
	}
	fleet, err := pb.NewRedisServiceClient(dialAs(t, address, opss)).GetFleet(testContext(t), &pb.GetFleetRequest{})
	require.NoError(t, err)
	ceiling := fleet.Ceiling
	require.Greater(t, ceiling, own.Token+1)
	requireLost(t, his, id, lease(ceiling, "fast/2", "fast/3"))
	for _, token := range []uint64{uint64(granted["token"].(float64)), own.Token, own.Token + 1, ceiling - 1, ceiling} {
		requireLost(t, his, id, lease(token, "fast/1"))
		requireLost(t, his, id, lease(token, "fast/1", "fast/2", "fast/3"))
	}
	_, seen := postAs(t, address, opss, "/v1/inspect", `{"resource":"fast/1"}`)
	require.Contains(t, mustJSON(t, seen), `"holders":[]`)
	next := awaitLease(t, address, alices, "fast/1", "efficiency")
	require.Less(t, next["token"].(float64), float64(ceiling), "no renewal has used up the tokens")

	foreign := lease(own.Token, "fast/2", "fast/3")
	foreign.Nonce = 8
	refused := renewLease(his, id, foreign).Error
	require.Equal(t, "invalid", refused.GetCode(), "the name has another nonce")
	require.NotContains(t, refused.GetMessage(), own.Name)
	for _, c := range []*streamClient{his, openStreamAs(t, address, bobs)} {
		renewed := renewLease(c, id, lease(own.Token, "fast/3", "fast/2"))
		require.Nil(t, renewed.Error)
		require.Empty(t, renewed.Lost)
	}
}

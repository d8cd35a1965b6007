package server_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore"
)

// A follower whose API has another address after a restart announces it, and all
// members learn it.
func TestMemberAnnouncesNewAddress(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, engine.Fleet{})
	moved := c.follower()
	moved.kill()
	moved.spec.API = testserver.FreeAddr(t)
	moved.start()
	for _, m := range c.members {
		eventually(t, m.spec.ID+" knows the new address", func() bool {
			members, _ := m.status()["members"].([]any)
			for _, other := range members {
				if other := other.(map[string]any); m != moved && other["id"] == moved.spec.ID {
					return other["apiAddress"] == moved.spec.API
				}
			}
			return m == moved
		})
	}
}

// Leadership is transferred, a dead member is removed, and a new one joins through a
// follower.
func TestMembership(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, engine.Fleet{})
	old, to := c.awaitLeader(), c.follower()
	eventually(t, "the other member leads", func() bool { // a transfer may take too long, or an election follow it
		if c.leader() != to {
			post(t, to.spec.API, "/v1/transfer", `{"to":"`+to.spec.ID+`"}`)
		}
		return c.leader() == to
	})

	old.kill()
	c.remove(old.spec.ID, c.follower)
	members, _ := c.awaitLeader().status()["members"].([]any)
	require.Len(t, members, 2)

	joining := &member{t: t, spec: memberSpec{ID: "n4", Dir: t.TempDir(), Raft: testserver.FreeAddr(t),
		API: testserver.FreeAddr(t), Join: c.follower().spec.API}}
	joining.start()
	t.Cleanup(joining.kill)
	eventually(t, "the new member votes", func() bool {
		members, _ := c.awaitLeader().status()["members"].([]any)
		for _, m := range members {
			if m := m.(map[string]any); m["id"] == "n4" && m["voter"] == true {
				return true
			}
		}
		return false
	})
}

// Unary calls find a session and its lease again after the leader was killed.
func TestSessionSurvivesLeaderFailure(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, engine.Fleet{})
	first := mustPost(t, c.awaitLeader().spec.API, "/v1/acquire", `{"resource":"a","ttl":"10m"}`)
	c.awaitLeader().kill()
	session := first["sessionId"].(string)
	tries := 0
	call := func(path, body string) (code int, answer map[string]any) { // a busy machine may elect again
		eventually(t, "a leader answers "+path, func() bool {
			tries++
			code, answer = post(t, c.awaitLeader().spec.API, path, strings.ReplaceAll(body, "TRY", fmt.Sprint(tries)))
			return code != http.StatusServiceUnavailable && code != http.StatusGatewayTimeout
		})
		return code, answer
	}
	code, renewed := call("/v1/renew", `{"sessionId":"`+session+`"}`)
	require.Equal(t, http.StatusOK, code, renewed)
	require.Equal(t, []any{first["token"]}, renewed["tokens"])
	code, second := call("/v1/acquire", `{"resource":"b/TRY","sessionId":"`+session+`"}`)
	require.Equal(t, http.StatusOK, code, second)
	require.NotEqual(t, first["nonce"], second["nonce"])
	before := tries
	code, closed := call("/v1/close-session", `{"sessionId":"`+session+`"}`)
	if tries == before+1 || code != http.StatusGone { // an uncertain try may have closed it
		require.Equal(t, http.StatusOK, code, closed)
	}
	var third map[string]any
	eventually(t, "the lock is free", func() bool { // an uncertain try may hold it until its session expires
		code, third = call("/v1/acquire", `{"resource":"a","ttl":"10s"}`)
		return code == http.StatusOK
	})
	require.Greater(t, third["token"], first["token"])
}

// A follower that cannot connect to the leader forwards a call to the next one. The call was never sent, so its outcome
// is known.
func TestFollowerWaitsForTheNextLeader(t *testing.T) {
	t.Parallel()
	refuses, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer refuses.Close()
	tried := make(chan struct{}, 1000)
	go func() {
		for conn, err := refuses.Accept(); err == nil; conn, err = refuses.Accept() {
			conn.Close()
			tried <- struct{}{}
		}
	}()
	const heartbeat = 2 * time.Second // only the transfer moves the leadership
	leader := startServer(t, func(c *server.Config) {
		c.Advertise, c.Raft.HeartbeatTimeout = refuses.Addr().String(), heartbeat
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	follower, err := server.New(server.Config{Logger: quiet, Raft: raftstore.Config{ID: "n2",
		Storage: raftstore.MemoryStorage(), Address: "127.0.0.1:0", Logger: quiet, HeartbeatTimeout: heartbeat}}, listener)
	require.NoError(t, err)
	go func() { _ = follower.Serve() }()
	defer follower.Close()
	require.NoError(t, follower.Node().Join(testContext(t), leader.Node()))
	codes := make(chan int, 1)
	go func() {
		response, err := http.Post("http://"+follower.Address()+"/v1/acquire", "application/json",
			strings.NewReader(`{"resource":"a"}`))
		if err == nil {
			response.Body.Close()
			codes <- response.StatusCode
		}
	}()
	testserver.Receive(t, tried)
	require.NoError(t, leader.Node().Transfer(testContext(t), "n2"))
	require.Equal(t, http.StatusOK, testserver.Receive(t, codes))
}

// After the leader is killed, a holder hears from the new leader that its lease is gone, long
// before its next renewal is due.
func TestHolderReconnectsAfterAFailover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, engine.Fleet{})
	client, err := lease.New(newClientWith(t, c.endpoints(), remote.Config{Timeout: time.Minute}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	l, err := client.Acquire(t.Context(), "a", lease.WithTTL(time.Hour))
	require.NoError(t, err)
	c.awaitLeader().kill()
	eventually(t, "a leader breaks the lease", func() bool {
		code, _ := post(t, c.awaitLeader().spec.API, "/v1/break", fmt.Sprintf(`{"resource":"a","token":"%d"}`, l.Token()))
		return code == http.StatusOK || code == http.StatusNotFound
	})
	eventually(t, "the holder knows", func() bool { return l.Err() != nil })
	require.ErrorIs(t, l.Err(), lease.ErrLost)
}

// With two of three members dead, the last one serves efficiency mode, and reports
// that it serves nothing else.
func TestEfficiencyNeedsNoLeader(t *testing.T) {
	t.Parallel()
	c := startClusterWithRedis(t, 3, fleetOf(startRedis(t, 3), longTTL))
	before := mustPost(t, c.awaitLeader().spec.API, "/v1/acquire", `{"resource":"fast/kept","ttl":"1m"}`)
	last := c.members[2]
	c.members[0].kill()
	c.members[1].kill()
	eventually(t, "it knows no leader", func() bool {
		return last.status()["leader"] == nil && last.status()["serves"] != true
	})
	address := last.spec.API
	require.Equal(t, []any{before["token"]}, mustPost(t, address, "/v1/renew", leaseName(before))["tokens"])
	useElsewhere(t, address, address)
	useStream(t, address)
	require.Contains(t, fmt.Sprint(mustPost(t, address, "/v1/list", `{"mode":"efficiency"}`)), "fast/kept")
	prefix := "fast/"
	require.Equal(t, "granted", watchEvents(t, address, &pb.WatchRequest{Prefix: &prefix})().Type)
	fleet := mustPost(t, address, "/v1/get-fleet", `{}`)
	require.Equal(t, true, fleet["ready"])
	require.Len(t, fleet["nodes"], 3)
	topology, err := pb.NewPolicyServiceClient(dial(t, address)).WatchTopology(testContext(t), &pb.WatchTopologyRequest{})
	require.NoError(t, err)
	first, err := topology.Recv()
	require.NoError(t, err)
	require.True(t, first.Ready)
	require.Len(t, first.Policies, 1)

	code, answer := post(t, address, "/v1/acquire", `{"resource":"slow"}`)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "not-leader", answer["code"])
	health := mustPost(t, address, "/v1/health", `{}`)
	require.Equal(t, "serving", health["status"])
	require.Contains(t, health["reason"], "locks in efficiency mode only")

	last.kill()
	last.start()
	_, answer = post(t, address, "/v1/list", `{"mode":"efficiency"}`)
	require.Equal(t, "not-leader", answer["code"], "it has not applied its log: %v", answer)
}

// An acquire with a short wait is granted although its member does not know yet that another member has released the
// lock.
func TestShortWaitAsksRedis(t *testing.T) {
	t.Parallel()
	c := startClusterWithRedis(t, 3, fleetOf(startRedis(t, 1), longTTL))
	for range 20 {
		held := mustPost(t, c.members[0].spec.API, "/v1/acquire", `{"resource":"fast/a","ttl":"1m","wait":"1m"}`)
		mustPost(t, c.members[1].spec.API, "/v1/release", leaseName(held))
		code, answer := post(t, c.members[0].spec.API, "/v1/acquire", `{"resource":"fast/a","ttl":"1m","wait":"1ns"}`)
		require.Equal(t, http.StatusOK, code, answer)
		mustPost(t, c.members[0].spec.API, "/v1/release", leaseName(answer))
	}
}

// The next leader completes a migration.
func TestMigrationSurvivesLeaderFailure(t *testing.T) {
	t.Parallel()
	c := startClusterWithRedis(t, 3, fleetOf(startRedis(t, 3), 10*time.Second))
	first := mustPost(t, c.awaitLeader().spec.API, "/v1/acquire", `{"resource":"fast/a","ttl":"10s"}`)
	startMigration(t, c.awaitLeader().spec.API, "fast/", engine.Correctness, false)
	require.Equal(t, 1, c.killLeader(nil))
	var next map[string]any
	eventually(t, "the lock is in correctness mode", func() bool {
		var code int
		code, next = post(t, c.awaitLeader().spec.API, "/v1/acquire", `{"resource":"fast/a"}`)
		return code == http.StatusOK && next["mode"] == "correctness"
	})
	require.Greater(t, next["token"], first["token"])
}

// The conformance suite passes while leaders are killed and come back. Pauses longer
// than the TTL are part of the test: a new leader gives every session its full TTL
// again, so that no session would expire without them.
func TestConformanceWhileLeadersAreKilled(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, engine.Fleet{})
	stop, stopped := make(chan struct{}), make(chan int)
	go func() { stopped <- c.killLeaders(stop, 4, suiteTTL) }()
	t.Run("suite", func(t *testing.T) {
		leasetest.Run(t, func(t *testing.T) leasetest.Subject {
			t.Parallel()
			return leasetest.Subject{
				Backend: func() engine.Backend { return newClientWith(t, c.endpoints(), remote.Config{Timeout: time.Minute}) },
				Mode:    engine.Correctness,
				TTL:     suiteTTL,
				FIFO:    true,
			}
		})
	})
	close(stop)
	kills := <-stopped
	require.Greater(t, kills, 2, "the suite has run across changes of the leader")
	t.Logf("%d leaders were killed", kills)
}

// Workers that take turns on few locks never hold one at the same time, and tokens
// grow, while leaders are killed.
func TestOneHolderWhileLeadersAreKilled(t *testing.T) {
	t.Parallel()
	const kills, clients, workers, locks = 6, 3, 4, 2
	c := startCluster(t, 3, engine.Fleet{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var (
		mu     sync.Mutex
		inside [locks]int
		tokens [locks][]fencing.Token
		wg     sync.WaitGroup
	)
	for range clients {
		client, err := lease.New(newClientWith(t, c.endpoints(), remote.Config{Timeout: time.Minute}),
			lease.WithPolicies(engine.Policy{TTL: suiteTTL}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Close(context.Background())) })
		for n := range workers {
			lock := n % locks
			wg.Go(func() {
				for ctx.Err() == nil {
					err := client.Do(ctx, fencing.Resource(fmt.Sprint("lock ", lock)), func(_ context.Context, l *lease.Lease) error {
						mu.Lock()
						defer mu.Unlock()
						if inside[lock]++; inside[lock] != 1 {
							t.Errorf("%d holders of lock %d", inside[lock], lock)
						}
						tokens[lock] = append(tokens[lock], l.Token())
						inside[lock]--
						return nil
					})
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	granted := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(tokens[0])
	}
	for range kills {
		require.Equal(t, 1, c.killLeader(nil))
		before := granted()
		eventually(t, "the next leader grants", func() bool { return granted() > before })
	}
	cancel()
	wg.Wait()
	for lock := range tokens {
		require.IsIncreasing(t, tokens[lock])
		t.Logf("lock %d: %d grants", lock, len(tokens[lock]))
	}
}

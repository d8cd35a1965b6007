package server_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/redlockadapter"
)

// startRedis starts masters for the efficiency mode.
func startRedis(t testing.TB, n int) (addresses []string) {
	t.Helper()
	for range n {
		addresses = append(addresses, testserver.Redis(t).Addr)
	}
	require.NoError(t, redlockadapter.Init(patient(t), redisConfig(addresses), fencing.None))
	return addresses
}

// startBoth starts a server with both modes, and locks that begin with "fast/"
// in the efficiency mode.
func startBoth(t testing.TB) (*server.Server, *redlockadapter.Backend) {
	t.Helper()
	return startOn(t, redisConfig(startRedis(t, 3)))
}

// startOn is startBoth on masters that run.
func startOn(t testing.TB, config redlockadapter.Config) (*server.Server, *redlockadapter.Backend) {
	t.Helper()
	engine, err := redlockadapter.New(patient(t), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close(context.Background())) })
	s := startOne(t, func(c *server.Config) {
		c.Redis, c.RedisMaxTTL = engine, config.MaxTTL
	})
	setMode(t, s.Address(), "fast/", lease.Efficiency)
	return s, engine
}

func setMode(t testing.TB, address, prefix string, mode lease.Mode) {
	t.Helper()
	code, answer := post(t, address, "/v1/set-policy", fmt.Sprintf(`{"policy":{"prefix":%q,"mode":%q}}`, prefix, mode))
	require.Equal(t, http.StatusOK, code, answer)
}

func TestConformanceOfEfficiency(t *testing.T) {
	s, _ := startBoth(t)
	setMode(t, s.Address(), "leasetest/", lease.Efficiency)
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		return leasetest.Subject{
			Backend:     func() lease.Backend { return client(t, []string{s.Address()}) },
			Mode:        lease.Efficiency,
			TTL:         time.Second,
			Unsupported: []leasetest.Feature{leasetest.FeatureShared, leasetest.FeaturePermits},
		}
	})
}

// TestModes: the policy decides, and a caller with another idea is told both.
func TestModes(t *testing.T) {
	s, _ := startBoth(t)
	_, fast := post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a","ttl":"2s"}`)
	require.Equal(t, "efficiency", fast["mode"], fast)
	_, slow := post(t, s.Address(), "/v1/acquire", `{"resource":"slow/a"}`)
	require.Equal(t, "correctness", slow["mode"])
	for _, c := range []struct{ resource, expected, has string }{{"fast/b", "correctness", "efficiency"}, {"slow/b", "efficiency", "correctness"}} {
		code, answer := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"mode":%q}`, c.resource, c.expected))
		require.Equal(t, http.StatusConflict, code)
		require.Equal(t, "mode-mismatch", answer["code"])
		require.Equal(t, c.expected, answer["expectedMode"])
		require.Equal(t, c.has, answer["mode"])
	}
	code, answer := post(t, s.Address(), "/v1/acquire", `{"resources":["fast/b","slow/b"]}`)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, answer["message"], "a set has one mode")

	named := fmt.Sprintf(`{"resource":"fast/a","token":%v}`, fast["token"])
	code, renewed := post(t, s.Address(), "/v1/renew", named)
	require.Equal(t, http.StatusOK, code, renewed)
	require.Equal(t, []any{fast["token"]}, renewed["tokens"])
	code, released := post(t, s.Address(), "/v1/release", named)
	require.Equal(t, http.StatusOK, code, released)
	require.Equal(t, true, released["released"])
}

// TestMoves: a lock that changes its mode, there and back, has one holder and
// growing tokens all the way.
func TestMoves(t *testing.T) {
	s, engine := startBoth(t)
	acquire := func() map[string]any {
		code, answer := post(t, s.Address(), "/v1/acquire", `{"resource":"moves/a","ttl":"2s"}`)
		require.Equal(t, http.StatusOK, code, answer)
		return answer
	}
	release := func(l map[string]any) {
		_, answer := post(t, s.Address(), "/v1/release", fmt.Sprintf(`{"resource":"moves/a","token":%v}`, l["token"]))
		require.Equal(t, true, answer["released"])
	}
	for range 20 { // the other engine's tokens are far behind
		release(acquire())
	}
	last := acquire()
	code, answer := post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"moves/","mode":"efficiency"}}`)
	require.Equal(t, http.StatusConflict, code, "it is in use")
	require.Equal(t, "held", answer["code"])
	release(last)
	setMode(t, s.Address(), "moves/", lease.Efficiency)
	for range 20 {
		l := acquire()
		require.Equal(t, "efficiency", l["mode"])
		require.Greater(t, l["token"], last["token"])
		release(l)
		last = l
	}

	user, err := lease.New(client(t, []string{s.Address()}), lease.WithPolicies(lease.Policy{TTL: redisMaxTTL}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, user.Close(context.Background())) })
	held, err := user.Acquire(patient(t), "moves/a")
	require.NoError(t, err)
	moved := make(chan int, 1)
	go func() {
		code, _ := post(t, s.Address(), "/v1/set-policy", `{"policy":{"prefix":"moves/","mode":"correctness"}}`)
		moved <- code
	}()
	select {
	case <-held.Done():
	case code := <-moved:
		require.FailNow(t, "it moved though it had a holder", "%d", code)
	}
	require.ErrorIs(t, held.Err(), lease.ErrLost, "a lease is not renewed while its lock moves")
	code, answer = post(t, s.Address(), "/v1/acquire", `{"resource":"moves/a","ttl":"2s"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, answer)
	require.Contains(t, answer["message"], "on the move")
	_, listed := post(t, s.Address(), "/v1/list-policies", `{}`)
	require.Equal(t, []any{"moves/"}, listed["moving"])
	require.Equal(t, http.StatusOK, <-moved)
	status, err := engine.Inspect(patient(t), "moves/a")
	require.NoError(t, err)
	require.Empty(t, status.Holders, "nobody holds it in the engine that it came from")
	l := acquire()
	require.Equal(t, "correctness", l["mode"])
	require.Greater(t, l["token"], float64(held.Token()))
	_, listed = post(t, s.Address(), "/v1/list-policies", `{}`)
	require.Nil(t, listed["moving"])
}

// TestUnfinishedMove: a move that was cut short keeps the lock closed, and the
// same call again finishes it.
func TestUnfinishedMove(t *testing.T) {
	s, _ := startBoth(t)
	ctx, cancel := context.WithCancel(patient(t))
	request := newPost(t, s.Address(), "/v1/delete-policy", `{"prefix":"fast/"}`).WithContext(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(request)
		done <- err
	}()
	moving := func() bool {
		_, listed := post(t, s.Address(), "/v1/list-policies", `{}`)
		return listed["moving"] != nil
	}
	eventually(t, "it moves", moving)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	eventually(t, "new leases are refused", func() bool {
		code, _ := post(t, s.Address(), "/v1/acquire", `{"resource":"fast/a","ttl":"1s"}`)
		return code == http.StatusServiceUnavailable
	})
	require.True(t, moving())
	setMode(t, s.Address(), "fast/", lease.Efficiency) // back again
	eventually(t, "they are granted again", func() bool {
		code, _ := post(t, s.Address(), "/v1/acquire", `{"resource":"fast/b","ttl":"1s"}`)
		return code == http.StatusOK
	})
	require.False(t, moving())
}

// TestEfficiencySurvivesItsLeader: a lease of the efficiency mode is found again,
// with the same token, when another member leads.
func TestEfficiencySurvivesItsLeader(t *testing.T) {
	c := startCluster(t, 3, startRedis(t, 3)...)
	setMode(t, c.leader().spec.API, "fast/", lease.Efficiency)
	var lost sync.Map
	session, err := client(t, c.endpoints()).Open(patient(t), lease.SessionConfig{ID: lease.NewSessionID(), TTL: redisMaxTTL,
		Lost: func(n lease.Nonce, err error) { lost.Store(n, err) }})
	require.NoError(t, err)
	tries := 0
	eventually(t, "a lease that outlived its leader", func() bool {
		tries++
		nonce, name := lease.Nonce(tries), fencing.Resource(fmt.Sprint("fast/", tries))
		grant, err := session.Acquire(patient(t), lease.Request{Nonce: nonce, Resources: []fencing.Resource{name}, Holder: "h"})
		require.NoError(t, err)
		require.Equal(t, 1, c.killLeader(nil))
		failed, err := session.Renew(patient(t))
		require.NoError(t, err)
		status, err := client(t, c.endpoints()).Inspect(patient(t), name)
		require.NoError(t, err)
		require.Empty(t, failed)
		_, gone := lost.Load(nonce)
		return !gone && len(status.Holders) == 1 && status.Holders[0].Token == grant.Token
	})
}

// TestLongWaitInEfficiency: a grant that was long in coming is worth something
// when it arrives.
func TestLongWaitInEfficiency(t *testing.T) {
	s, _ := startBoth(t)
	clock := lease.SystemClock()
	open := func() lease.Session {
		session, err := client(t, []string{s.Address()}).Open(patient(t), lease.SessionConfig{ID: lease.NewSessionID(), TTL: redisMaxTTL, Clock: clock})
		require.NoError(t, err)
		return session
	}
	holder, waiter := open(), open()
	request := lease.Request{Nonce: 1, Resources: []fencing.Resource{"fast/a"}}
	first, err := holder.Acquire(patient(t), request)
	require.NoError(t, err)

	queued, granted := make(chan struct{}), make(chan lease.Grant, 1)
	began := clock.Now()
	go func() {
		request := request
		request.Wait, request.Queued = true, func() { close(queued) }
		grant, err := waiter.Acquire(patient(t), request)
		if err != nil {
			t.Error(err)
		}
		granted <- grant
	}()
	<-queued
	eventually(t, "it has waited for longer than its TTL", func() bool {
		_, err := holder.Renew(patient(t))
		require.NoError(t, err)
		_, err = waiter.Renew(patient(t))
		require.NoError(t, err)
		return clock.Now().Since(began) > redisMaxTTL
	})
	require.NoError(t, holder.Release(patient(t), 1))
	second := <-granted
	require.True(t, second.Token.Newer(first.Token))
	require.Positive(t, second.Sent.Since(began.Add(redisMaxTTL)), "its time counts from when it was granted, not from when it was asked for")
}

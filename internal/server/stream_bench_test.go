package server_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// BenchmarkRemote measures acquire and release at a member in another process, over
// the session stream and with unary calls. Each caller has a lock of its own. One
// operation is an acquire or a release.
//
//	go test -run '^$' -bench Remote ./internal/server
func BenchmarkRemote(b *testing.B) {
	c := startCluster(b, 1, engine.Fleet{})
	address := c.members[0].spec.API
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("stream/callers=%d", callers), func(b *testing.B) {
			session, err := newClient(b, []string{address}).Open(testContext(b), engine.SessionConfig{ID: engine.NewSessionID(),
				TTL: engine.MaxTTL})
			require.NoError(b, err)
			measure(b, c.members[0].command.Process.Pid, callers, func(ctx context.Context, nonce engine.Nonce,
				name string) error {
				if _, err := session.Acquire(ctx,
					engine.Request{Nonce: nonce, Resources: []fencing.Resource{fencing.Resource(name)}}); err != nil {
					return err
				}
				return session.Release(ctx, engine.Held{Nonce: nonce})
			})
		})
		b.Run(fmt.Sprintf("unary/callers=%d", callers), func(b *testing.B) {
			api := pb.NewLeaseServiceClient(dial(b, address))
			session, err := api.OpenSession(testContext(b), &pb.OpenSessionRequest{Ttl: engine.MaxTTL.String()})
			require.NoError(b, err)
			measure(b, c.members[0].command.Process.Pid, callers, func(ctx context.Context, nonce engine.Nonce,
				name string) error {
				if _, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: name, SessionId: session.SessionId,
					Nonce: uint64(nonce)}); err != nil {
					return err
				}
				_, err := api.Release(ctx, &pb.ReleaseRequest{SessionId: session.SessionId, Nonce: uint64(nonce)})
				return err
			})
		})
	}
}

// BenchmarkRemoteEfficiency measures locks in efficiency mode on five Redis servers,
// through a follower.
//
//	go test -run '^$' -bench RemoteEfficiency ./internal/server
func BenchmarkRemoteEfficiency(b *testing.B) {
	c := startClusterWithRedis(b, 3, fleetOf(startRedis(b, 5), longTTL))
	setMode(b, c.awaitLeader().spec.API, "bench/", engine.Efficiency)
	c.awaitApplied("bench/", engine.Efficiency)
	follower := c.follower()
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("stream/callers=%d", callers), func(b *testing.B) {
			id := engine.NewSessionID()
			session, err := newClient(b, []string{follower.spec.API}).Efficiency().Open(testContext(b),
				engine.SessionConfig{ID: id, TTL: longTTL})
			require.NoError(b, err)
			measure(b, follower.command.Process.Pid, callers, func(ctx context.Context, nonce engine.Nonce, name string) error {
				names := []fencing.Resource{fencing.Resource(name)}
				grant, err := session.Acquire(ctx, engine.Request{Nonce: nonce, Resources: names})
				if err != nil {
					return err
				}
				return session.Release(ctx, engine.Held{Name: grant.Name, Session: id, Nonce: nonce, Resources: names,
					Token: grant.Token, TTL: longTTL})
			})
		})
	}
}

// measure makes callers run b.N pairs of operations together. It also reports the
// processor time of client and server for an operation, which says more than the
// duration on a busy machine.
func measure(b *testing.B, server, callers int, pair func(ctx context.Context, nonce engine.Nonce, name string) error) {
	b.Helper()
	var next atomic.Int64
	var work sync.WaitGroup
	before := processorTime(b, os.Getpid()) + processorTime(b, server)
	b.ResetTimer()
	for i := range callers {
		work.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				if err := pair(context.Background(), engine.Nonce(n), fmt.Sprint("bench/", i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	b.StopTimer()
	b.ReportMetric(float64((processorTime(b, os.Getpid())+processorTime(b, server)-before).Microseconds())/float64(2*b.N),
		"cpu-us/op")
	b.ReportMetric(float64(2*b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(b.Elapsed().Microseconds())*float64(callers)/float64(2*b.N), "us/op")
}

// processorTime returns the processor time of a process, or 0 where it is not known.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	const tick = 10 * time.Millisecond // on every Linux that Go supports
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick
}

package limits_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
)

func TestValidate(t *testing.T) {
	require.NoError(t, limits.Default().Validate())
	for says, change := range map[string]func(*limits.Limits){
		"limit-request-bytes (10) must be from 1024 to 1048576": func(l *limits.Limits) { l.RequestBytes = 10 },
		"limit-name-bytes (513) must be from 1 to 512":          func(l *limits.Limits) { l.NameBytes = 513 },
		"limit-leases-per-user (0) must be from 1":              func(l *limits.Limits) { l.Cluster.LeasesPerUser = 0 },
		"limit-ttl-min (1h0m0s) must be at most limit-ttl-max (1m0s)": func(l *limits.Limits) {
			l.TTLMin, l.TTLMax = time.Hour, time.Minute
		},
		"limit-ttl-min (1ms) must be at least":  func(l *limits.Limits) { l.TTLMin = time.Millisecond },
		"limit-ttl-max (48h0m0s) must be at":    func(l *limits.Limits) { l.TTLMax = 48 * time.Hour },
		"limit-idle-timeout (0s) must be above": func(l *limits.Limits) { l.SendTimeout, l.IdleTimeout = 0, 0 },
	} {
		l := limits.Default()
		change(&l)
		require.ErrorIs(t, l.Validate(), limits.ErrConfig)
		require.ErrorContains(t, l.Validate(), says)
	}
}

func TestCheckRequest(t *testing.T) {
	l := limits.Default()
	l.NameBytes, l.MetadataBytes, l.SetSize = 10, 5, 2
	request := engine.Request{Resources: []fencing.Resource{"0123456789", "b"}, Metadata: map[string]string{"k": "1234"}}
	require.NoError(t, l.CheckRequest(&request))
	request.Metadata["k"] = "12345"
	require.ErrorIs(t, l.CheckRequest(&request), engine.ErrInvalid)
	require.ErrorContains(t, l.CheckRequest(&request), "6 bytes, and limit-metadata-bytes allows 5")
	request.Resources[0] = "0123456789x"
	require.ErrorIs(t, l.CheckRequest(&request), fencing.ErrInvalidResource)
	require.ErrorContains(t, l.CheckRequest(&request), "11 bytes, and limit-name-bytes allows 10")
	request.Resources = append(request.Resources, "c")
	require.ErrorContains(t, l.CheckRequest(&request), "3 locks, and limit-set-size allows 2")
}

// Leases in efficiency mode count until they are released or expire.
func TestLeases(t *testing.T) {
	l, clock := limits.Default(), leasetest.NewStoppedClock()
	l.Cluster.LeasesPerUser = 2
	account := limits.NewAccounts(l, clock).Of(t.Context())
	require.NoError(t, account.Granted("a", time.Minute))
	require.NoError(t, account.CheckLeases())
	require.NoError(t, account.Granted("b", time.Hour))
	require.ErrorIs(t, account.CheckLeases(), engine.ErrLimit)
	require.ErrorIs(t, account.Granted("c", time.Hour), engine.ErrLimit, "granted at the same time")
	account.Renewed("b", time.Hour)
	account.Released("b")
	require.NoError(t, account.CheckLeases())
	account.Renewed("c", time.Hour) // of another member
	require.ErrorContains(t, account.CheckLeases(), "limit-leases-per-user")
	clock.Move(2 * time.Minute)
	require.NoError(t, account.CheckLeases(), "a has expired")
}

// Calls at the same time are not refused because of leases that have expired.
func TestExpiredLeasesRefuseNoGrant(t *testing.T) {
	l, clock := limits.Default(), leasetest.NewStoppedClock()
	l.Cluster.LeasesPerUser = 3
	account := limits.NewAccounts(l, clock).Of(t.Context())
	for _, name := range []string{"a", "b"} {
		require.NoError(t, account.Granted(name, time.Second))
	}
	clock.Move(time.Minute)
	require.NoError(t, account.CheckLeases())
	for _, name := range []string{"c", "d", "e"} {
		require.NoError(t, account.Granted(name, time.Hour), name)
	}
	require.ErrorIs(t, account.Granted("f", time.Hour), engine.ErrLimit)
}

func TestCheckOperation(t *testing.T) {
	l := limits.Default()
	l.RequestBytes = 1000
	lease := &pb.HeldLease{Name: strings.Repeat("x", 900)}
	renew := &pb.RenewCall{Leases: []*pb.HeldLease{lease, lease, lease}}
	require.NoError(t, l.CheckOperation(&pb.Operation{Call: &pb.Operation_Renew{Renew: renew}}))
	lease.Name += strings.Repeat("x", 100)
	err := l.CheckOperation(&pb.Operation{Call: &pb.Operation_Renew{Renew: renew}})
	require.ErrorIs(t, err, wire.ErrTooLarge)
	require.ErrorIs(t, err, engine.ErrInvalid)
	require.ErrorContains(t, err, "limit-request-bytes allows 1000")
}

// A user may make as many requests as its rate allows, and saves those of one second.
// Renewals have a reserve.
func TestRate(t *testing.T) {
	l := limits.Default()
	l.RequestsPerSecond = 10
	clock := leasetest.NewStoppedClock()
	account := limits.NewAccounts(l, clock).Of(context.Background())
	take := func(f func() error) (n int) {
		for n < 1000 && f() == nil {
			n++
		}
		return n
	}
	require.Equal(t, 10, take(account.Request))
	err := account.Request()
	require.ErrorIs(t, err, engine.ErrLimit)
	require.ErrorContains(t, err, "more than 10 requests a second on this member, the value of "+
		"limit-requests-per-second; try again in 100ms")
	require.Equal(t, 10, take(account.Keep))
	clock.Move(time.Second)
	require.Zero(t, take(account.Request), "the reserve is filled first")
	clock.Move(time.Second / 2)
	require.Equal(t, 5, take(account.Request))
	clock.Move(time.Hour)
	require.Equal(t, 10, take(account.Request))
}

func TestCounts(t *testing.T) {
	l := limits.Default()
	l.StreamsPerUser, l.Cluster.WaitersPerUser = 2, 1
	account := limits.NewAccounts(l, leasetest.NewClock()).Of(context.Background())
	done, err := account.OpenStream()
	require.NoError(t, err)
	_, err = account.OpenStream()
	require.NoError(t, err)
	_, err = account.OpenStream()
	require.ErrorIs(t, err, engine.ErrLimit)
	require.ErrorContains(t, err, "all callers together: 2 streams on this member, as many as limit-streams-per-user "+
		"allows")
	done()
	_, err = account.OpenStream()
	require.NoError(t, err)
	_, err = account.Wait()
	require.NoError(t, err)
	_, err = account.Wait()
	require.ErrorContains(t, err, "limit-waiters-per-user")
}

func BenchmarkRequest(b *testing.B) {
	for name, rate := range map[string]int{"off": 0, "on": 1 << 30} {
		b.Run(name, func(b *testing.B) {
			l := limits.Default()
			l.RequestsPerSecond = rate
			accounts := limits.NewAccounts(l, engine.SystemClock())
			ctx := context.Background()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					_ = accounts.Of(ctx).Request()
				}
			})
		})
	}
}

func BenchmarkCheckOperation(b *testing.B) {
	l := limits.Default()
	id := engine.NewSessionID()
	op := &pb.Operation{Id: 1, Session: id[:], Call: &pb.Operation_Acquire{Acquire: &pb.AcquireCall{Nonce: 7,
		Resources: []string{"orders/region-1/00000001"}, Holder: "worker-17"}}}
	for b.Loop() {
		_ = l.CheckOperation(op)
	}
}

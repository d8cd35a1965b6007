package redlockadapter_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

func dialer(to string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, to)
	}
}

// An acquire that arrives after its release, over another connection, takes
// nothing.
func TestALateAcquireIsRefused(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	proxies := f.interpose(t, "acquire", 0, 1)
	b, session := f.backend(t), engine.NewSessionID()
	for _, c := range proxies {
		c.keep.Store(true)
	}
	_, _, err := b.Acquire(patient(t), session, longTTL, request(1, "a"))
	require.ErrorIs(t, err, engine.ErrUnavailable, "two of three nodes did not answer")
	for i, c := range proxies {
		c.keep.Store(false)
		waitFor(t, func() bool { return f.record(t, i, "a")["ended"] != "" }, "the release is known on the node")
		require.Equal(t, 1, c.deliver(t))
		require.Empty(t, f.record(t, i, "a")["nonce"])
	}
	require.Empty(t, f.record(t, 2, "a")["nonce"], "a lost attempt leaves nothing behind")
	held, _, err := b.Acquire(patient(t), session, longTTL, request(2, "a"))
	require.NoError(t, err)
	require.NoError(t, b.Release(patient(t), held))
}

// A renewal that arrives after the release takes nothing back.
func TestALateRenewalIsRefused(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	proxies := f.interpose(t, "renew", 0, 1)
	b, other := f.backend(t), f.backend(t)
	held, _, err := b.Acquire(patient(t), engine.NewSessionID(), longTTL, request(1, "a"))
	require.NoError(t, err)
	for _, c := range proxies {
		c.keep.Store(true)
	}
	require.ErrorIs(t, b.Renew(patient(t), []Held{held})[0], engine.ErrUncertain)
	if err := b.Release(patient(t), held); err != nil {
		require.ErrorIs(t, err, engine.ErrUncertain, "connections are being made again")
	}
	for i, c := range proxies {
		waitFor(t, func() bool { return f.record(t, i, "a")["ended"] == held.Name }, "the node hears of it all the same")
		require.Equal(t, 1, c.deliver(t))
		require.Empty(t, f.record(t, i, "a")["nonce"])
		c.keep.Store(false)
	}
	require.ErrorIs(t, b.Renew(patient(t), []Held{held})[0], engine.ErrLost, "nor does one by the caller")
	_, grant, err := other.Acquire(patient(t), engine.NewSessionID(), longTTL, request(1, "a"))
	require.NoError(t, err)
	require.True(t, grant.Token.Newer(held.Token))
}

// A script whose reply is lost is not sent again: a copy could arrive after the
// release. And an acceptance that nobody heard of does not count.
func TestScriptsAreSentOnce(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	proxies := f.interpose(t, "acquire", 0, 1)
	b, session := f.backend(t), engine.NewSessionID()
	for _, c := range proxies {
		c.swallow.Store(true)
	}
	_, _, err := b.Acquire(patient(t), session, longTTL, request(1, "a"))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	for i, c := range proxies {
		require.EqualValues(t, 1, c.passed.Load())
		c.swallow.Store(false)
		waitFor(t, func() bool { r := f.record(t, i, "a"); return r["token"] != "" && r["nonce"] == "" },
			"what the node accepted is released over a new connection")
	}
	_, _, err = b.Acquire(patient(t), session, longTTL, request(2, "a"))
	require.NoError(t, err)
}

// A node that was stopped and goes on carries out what it was sent meanwhile. The
// lock is free all the same, long before the TTL has passed.
func TestAStoppedNodeThatGoesOn(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).init(t)
	b, session := f.backend(t), engine.NewSessionID()
	for _, s := range f.servers[:2] {
		s.Pause()
	}
	_, _, err := b.Acquire(patient(t), session, longTTL, request(1, "a"))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, "2 are needed")
	start := engine.SystemClock().Now()
	for _, s := range f.servers[:2] {
		s.Resume()
	}
	waitFor(t, func() bool {
		for i := range f.servers {
			if f.record(t, i, "a")["nonce"] != "" {
				return false
			}
		}
		return true
	})
	nonce := engine.Nonce(1)
	waitFor(t, func() bool {
		nonce++
		_, _, err = b.Acquire(patient(t), session, longTTL, request(nonce, "a"))
		return err == nil
	})
	require.Less(t, engine.SystemClock().Now().Since(start), longTTL)
}

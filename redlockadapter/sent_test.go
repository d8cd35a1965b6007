package redlockadapter_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/redlockadapter"
)

// slowWay lets time pass on a clock when calls of one script are first on their way
// to a node.
type slowWay struct {
	*leasetest.StoppedClock
	call  []byte // as it is sent
	takes atomic.Int64
}

// slowly is a process of its own with a slow way to the nodes: what another one
// still sends is not taken for what it asks.
func (f *fleet) slowly(t *testing.T, script string) (lease.Session, *slowWay, <-chan lease.Nonce) {
	t.Helper()
	text, err := redlockadapter.Script(script)
	require.NoError(t, err)
	sum := sha1.Sum([]byte(text))
	w := &slowWay{StoppedClock: leasetest.NewStoppedClock(), call: []byte("evalsha\r\n$40\r\n" + hex.EncodeToString(sum[:]))}
	own := &fleet{servers: f.servers, config: f.config}
	own.config.Nodes = nil
	for _, o := range f.config.Nodes {
		slow := *o
		slow.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := redis.NewDialer(o)(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return slowConn{conn, w}, nil
		}
		own.config.Nodes = append(own.config.Nodes, &slow)
	}
	lost := make(chan lease.Nonce, 10)
	s, err := own.backend(t).Open(patient(t), lease.SessionConfig{ID: lease.NewSessionID(), TTL: f.config.MaxTTL, Clock: w,
		Lost: func(nonce lease.Nonce, _ error) { lost <- nonce }})
	require.NoError(t, err)
	return s, w, lost
}

// take makes the next call take a minute, and is the moment before it.
func (w *slowWay) take() lease.Instant {
	w.takes.Store(int64(time.Minute))
	return w.Now()
}

type slowConn struct {
	net.Conn
	way *slowWay
}

func (c slowConn) Write(text []byte) (int, error) {
	if bytes.Contains(text, c.way.call) {
		c.way.Move(time.Duration(c.way.takes.Swap(0)))
	}
	return c.Conn.Write(text)
}

// The time of a grant, and of a renewal, counts from before the scripts were
// sent: the nodes may have begun to count at once.
func TestTheTimeOfAGrantCountsFromTheQuestion(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL, f.config.NodeTimeout = 5*time.Minute, patience
	f.init(t)
	t.Run("acquired", func(t *testing.T) {
		s, way, _ := f.slowly(t, "acquire")
		asked := way.take()
		grant, err := s.Acquire(patient(t), request(1, "a"))
		require.NoError(t, err)
		require.Equal(t, time.Minute, way.Now().Since(asked), "the votes took their time")
		require.Equal(t, asked, grant.Sent)
	})
	t.Run("asked again", func(t *testing.T) {
		s, way, _ := f.slowly(t, "renew")
		_, err := s.Acquire(patient(t), request(1, "b"))
		require.NoError(t, err)
		way.Move(time.Second)
		asked := way.take()
		grant, err := s.Acquire(patient(t), request(1, "b"))
		require.NoError(t, err)
		require.Equal(t, time.Minute, way.Now().Since(asked))
		require.Equal(t, asked, grant.Sent, "who asks again counts from that question")
	})
	t.Run("renewed", func(t *testing.T) {
		s, way, lost := f.slowly(t, "renew")
		_, err := s.Acquire(patient(t), request(1, "c"))
		require.NoError(t, err)
		way.Move(time.Second)
		asked := way.take()
		failed, err := s.Renew(patient(t))
		require.NoError(t, err)
		require.Empty(t, failed)
		require.Empty(t, lost)
		require.Equal(t, time.Minute, way.Now().Since(asked))
		way.Move(f.config.MaxTTL - time.Minute)
		_, err = s.Renew(patient(t))
		require.NoError(t, err)
		require.Len(t, lost, 1, "its time has passed since the question")
	})
}

// Who chooses no clock has the one that goes on in suspend: by the other a process
// that slept would renew what others hold since.
func TestASessionCountsSuspendUnlessToldOtherwise(t *testing.T) {
	f := startFleet(t, 3)
	f.config.MaxTTL, f.config.NodeTimeout = 5*time.Minute, patience
	s, err := f.init(t).backend(t).Open(patient(t), lease.SessionConfig{ID: lease.NewSessionID(), TTL: f.config.MaxTTL})
	require.NoError(t, err)
	grant, err := s.Acquire(patient(t), request(1, "a"))
	require.NoError(t, err)
	require.Equal(t, readsBoth(lease.SystemClock().Now()), readsBoth(grant.Sent))
}

// readsBoth reports whether an instant has a reading of the clock that goes on in
// suspend. Not every system has one.
func readsBoth(i lease.Instant) bool { return i.Since(lease.NewInstant(i.Time(), 0)) > 0 }

package server_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote"
)

// wireCutter passes connections on to an address, until it is cut.
type wireCutter struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func newWireCutter(t testing.TB, to string) *wireCutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wireCutter{listener: listener, to: to}
	go w.run()
	t.Cleanup(func() {
		listener.Close()
		w.cut(true)
	})
	return w
}

func (w *wireCutter) run() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.to)
		if err != nil {
			near.Close()
			continue
		}
		w.mu.Lock()
		if w.isCut {
			near.Close()
			far.Close()
		}
		w.conns = append(w.conns, near, far)
		w.mu.Unlock()
		go func() { _, _ = io.Copy(near, far); near.Close() }()
		go func() { _, _ = io.Copy(far, near); far.Close() }()
	}
}

func (w *wireCutter) cut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = cut
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// TestLossWhileAway: what a client has lost while it was cut off it is told when
// it is back; what it still has it keeps.
func TestLossWhileAway(t *testing.T) {
	s := startOne(t)
	wire := newWireCutter(t, s.Address())
	away := client(t, []string{wire.listener.Addr().String()}, remote.WithTimeout(100*time.Millisecond))
	lost := make(chan engine.Nonce, 10)
	session, err := away.Open(patient(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute,
		Lost: func(n engine.Nonce, err error) {
			if !errorIsLost(err) {
				t.Error(err)
			}
			lost <- n
		}})
	require.NoError(t, err)
	var grants []engine.Grant
	for i, name := range []fencing.Resource{"a", "b"} {
		grant, err := session.Acquire(patient(t), engine.Request{Nonce: engine.Nonce(i + 1), Resources: []fencing.Resource{name}})
		require.NoError(t, err)
		grants = append(grants, grant)
	}
	wire.cut(true)
	_, err = session.Renew(patient(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, engine.ErrLost, "out of reach is not lost")
	require.NoError(t, client(t, []string{s.Address()}).Break(patient(t), "a", grants[0].Token))
	wire.cut(false)
	eventually(t, "it is back", func() bool {
		_, err := session.Renew(patient(t))
		return err == nil
	})
	require.Equal(t, engine.Nonce(1), <-lost)
	for len(lost) > 0 { // it may be told twice: by the comparison, and by a late push
		require.Equal(t, engine.Nonce(1), <-lost, "the other is kept")
	}
	again, err := session.Acquire(patient(t), engine.Request{Nonce: 2, Resources: []fencing.Resource{"b"}})
	require.NoError(t, err)
	require.Equal(t, grants[1].Token, again.Token)
}

// TestExpiryWhileAway: a session that ran out while its client was cut off is not
// brought back to life.
func TestExpiryWhileAway(t *testing.T) {
	s := startOne(t)
	wire := newWireCutter(t, s.Address())
	away := client(t, []string{wire.listener.Addr().String()}, remote.WithTimeout(100*time.Millisecond))
	lost := make(chan engine.Nonce, 10)
	session, err := away.Open(patient(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: 300 * time.Millisecond,
		Lost: func(n engine.Nonce, _ error) { lost <- n }})
	require.NoError(t, err)
	_, err = session.Acquire(patient(t), engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}})
	require.NoError(t, err)
	wire.cut(true)
	other := client(t, []string{s.Address()})
	next, err := other.Open(patient(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Minute})
	require.NoError(t, err)
	_, err = next.Acquire(patient(t), engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}, Wait: true})
	require.NoError(t, err, "the session has run out")
	wire.cut(false)
	eventually(t, "it hears of its end", func() bool {
		_, err = session.Renew(patient(t))
		return errorIsLost(err)
	})
	require.Equal(t, engine.Nonce(1), <-lost)
	_, err = session.Acquire(patient(t), engine.Request{Nonce: 2, Resources: []fencing.Resource{"b"}})
	require.ErrorIs(t, err, engine.ErrLost)
}

package server_test

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote"
)

// watched opens a session, ends it, and says how to see whether the client still
// has it in memory.
func watched(t *testing.T, b *remote.Backend, id engine.SessionID, end func(engine.Session)) (kept func() bool) {
	t.Helper()
	mark := new([64]byte)
	session, err := b.Open(patient(t), engine.SessionConfig{ID: id, TTL: time.Minute, Clock: engine.SystemClock(),
		Lost: func(n engine.Nonce, _ error) { mark[0] = byte(n) }})
	require.NoError(t, err)
	end(session)
	pointer := weak.Make(mark)
	return func() bool {
		runtime.GC()
		return pointer.Value() != nil
	}
}

// TestALinkForgetsWhatIsOver: a session that is over does not stay with the
// connection, which lasts.
func TestALinkForgetsWhatIsOver(t *testing.T) {
	s := startOne(t)
	b := client(t, []string{s.Address()})
	for name, end := range map[string]func(engine.Session, engine.SessionID){
		"closed": func(session engine.Session, _ engine.SessionID) { require.NoError(t, session.Close(patient(t))) },
		"lost": func(session engine.Session, id engine.SessionID) {
			post(t, s.Address(), "/v1/close-session", `{"sessionId":"`+id.String()+`"}`)
			_, err := session.Renew(patient(t))
			require.ErrorIs(t, err, engine.ErrLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := engine.NewSessionID()
			kept := watched(t, b, id, func(session engine.Session) { end(session, id) })
			eventually(t, "it is forgotten", func() bool { return !kept() })
			_, err := b.Inspect(patient(t), "a")
			require.NoError(t, err, "the connection is still there")
		})
	}
}

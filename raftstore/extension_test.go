package raftstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/memory"
)

// A holder that dies after an extension has ended blocks its lock for its own TTL, not for the
// longer one, also if its session was attached to another connection meanwhile.
func TestExtensionEnds(t *testing.T) {
	raft := func(t *testing.T) engine.Backend { return startMemory(t, 1).backend() }
	for name, start := range map[string]func(*testing.T) engine.Backend{
		"raft": raft, "attached": raft,
		"memory": func(t *testing.T) engine.Backend {
			b, err := memory.New()
			require.NoError(t, err)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, ctx := start(t), testContext(t)
				open := func(ttl time.Duration) (s engine.Session) {
					require.NoError(t, retry(ctx, func() (err error) {
						s, err = b.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl,
							Clock: engine.MonotonicClock()})
						return err
					}))
					return s
				}
				const ttl, extension = 2 * time.Second, 20 * time.Second
				holder, next := open(ttl), open(time.Hour)
				grant, err := holder.Acquire(ctx, lockRequest(1, "a"))
				require.NoError(t, err)
				held := engine.Held{Nonce: 1, Resources: lockRequest(1, "a").Resources, Token: grant.Token, TTL: extension}
				require.NoError(t, holder.Update(ctx, held))
				if name == "attached" {
					holder, err = b.(*Backend).Attach(ctx, engine.SessionConfig{ID: holder.(*Session).ID(), TTL: ttl,
						Clock: engine.MonotonicClock()})
					require.NoError(t, err)
				}
				for extended := time.Now(); time.Since(extended) <= extension; <-time.After(ttl / 4) {
					_, err := holder.Renew(ctx)
					require.NoError(t, err)
				}
				died := time.Now()
				waiting := lockRequest(1, "a")
				waiting.Wait = true
				_, err = next.Acquire(ctx, waiting)
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(died), 2*ttl)
			})
		})
	}
}

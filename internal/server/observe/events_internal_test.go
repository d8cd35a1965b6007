package observe

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
)

// slowBackend answers with a status as of the moment before its answer is delayed.
type slowBackend struct {
	engine.Backend
	clock  *leasetest.StoppedClock
	status engine.Status
	delay  time.Duration
}

func (b *slowBackend) Inspect(context.Context, fencing.Resource) (engine.Status, error) {
	b.clock.Move(b.delay)
	return b.status, nil
}

// A lease in Redis that has expired is reported as expired, however late the answer was that
// showed how much time was left. A lease whose end the nodes have forgotten has not expired
// before its time.
func TestReasonOfSlowAnswers(t *testing.T) {
	const ttl = 10 * time.Second
	for _, c := range []struct {
		name          string
		delay, passed time.Duration // of the answer, and then until the lease is gone
		want          string
	}{
		{"expired after a quick answer", 0, ttl, "expired"},
		{"expired after a slow answer", 3 * time.Second, ttl - 3*time.Second, "expired"},
		{"expired before the answer", 2 * ttl, 0, "expired"},
		{"gone early", 0, ttl / 2, "ended"},
		{"gone early after a slow answer", ttl / 4, ttl / 4, "ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := leasetest.NewStoppedClock()
			var kinds []string
			v := &view{
				Service: &Service{router: &routing.Router{Clock: clock}, recorder: NewRecorder(clock),
					ended: func(context.Context, fencing.Resource, *engine.Party) (string, error) { return "expired", nil }},
				send: func(e *pb.Event) { kinds = append(kinds, e.Type) },
				seen: map[fencing.Resource]engine.Status{}, askedAt: map[fencing.Resource]engine.Instant{},
			}
			b := &slowBackend{clock: clock, delay: c.delay}
			b.status = engine.Status{Resource: "a", Mode: engine.Efficiency,
				Holders: []engine.Party{{Holder: "ann", Nonce: 1, Token: 1, TTL: ttl}}}
			read := func() (engine.Status, error) { return b.Inspect(t.Context(), "a") }
			require.NoError(t, v.inspect(t.Context(), read))
			clock.Move(c.passed)
			b.status.Holders, b.delay = nil, 0
			require.NoError(t, v.inspect(t.Context(), read))
			require.Equal(t, []string{"granted", c.want}, kinds)
		})
	}
}

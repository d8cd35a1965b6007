package redlockadapter

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// After a pause of the process, a lease that may be over is not sent to further nodes.
func TestOldGrantsAreNotSpread(t *testing.T) {
	t.Parallel()
	b := newBackend(Config{Nodes: unreachableNodes(5)}.withDefaults())
	defer b.cancel()
	a := b.newAttempt(engine.Held{Resources: []fencing.Resource{"a"}, TTL: time.Second}, authority{version: 1})
	a.core.Ask(0b00111)
	for node := range 3 {
		a.core.Answer(node, quorum.Vote{State: quorum.Accepted, Token: 5}, false)
	}
	a.spreadGrant(b.clock.Now().Add(-time.Minute))
	require.EqualValues(t, 0b11000, a.core.Unasked)
	a.spreadGrant(b.clock.Now())
	require.Zero(t, a.core.Unasked)
}

// unreachableNodes returns addresses that lead nowhere.
func unreachableNodes(n int) (nodes []*redis.Options) {
	for i := range n {
		nodes = append(nodes, &redis.Options{Addr: fmt.Sprintf("192.0.2.%d:1", i+1)})
	}
	return nodes
}

// A lease is valid from before the first nodes are asked, also if the grant depends on nodes that are asked
// later.
func TestValidityCountsFromTheFirstAsk(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	config := Config{Nodes: unreachableNodes(3)}.withDefaults()
	decide := func(asked time.Duration) error {
		b := newBackend(config)
		b.cancel()
		a := b.newAttempt(engine.Held{Resources: []fencing.Resource{"a"}, TTL: ttl}, authority{version: 1})
		a.core.Ask(0b011)
		a.core.Answer(0, quorum.Vote{State: quorum.Accepted, Token: 5}, false)
		a.core.AskRest()
		a.core.Answer(2, quorum.Vote{State: quorum.Accepted, Token: 5}, false)
		close(a.decided)
		return b.decide(t.Context(), a, b.clock.Now().Add(-asked), false)
	}
	require.NoError(t, decide(ttl/2))
	err := decide(ttl)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, "longer than the lease lasts")
}

package hub_test

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/hub"
	"github.com/leased-project/leased/raftstore/machine"
)

// A waiter is answered when the release of the holder is applied.
func Example() {
	m, h := machine.New(), hub.New()
	apply := func(c machine.Command) machine.Result {
		result, events := m.Apply(c)
		for _, call := range h.Applied(m, c, result, events, engine.Instant{}) {
			call()
		}
		return result
	}
	id := engine.SessionID{1}
	k := apply(&machine.OpenSession{Session: id, TTL: 10 * time.Second}).Incarnation
	acquire := func(nonce engine.Nonce) machine.Code {
		return apply(&machine.Acquire{Session: id, Incarnation: k, Request: engine.Request{Nonce: nonce,
			Resources: []fencing.Resource{"jobs/7"}, Mode: engine.Correctness, Wait: true}}).Code
	}
	fmt.Println(acquire(1), acquire(2))

	attempt := hub.Attempt{Session: id, Incarnation: k, Nonce: 2}
	h.Expect(attempt, hub.NewWait(func(w *hub.Wait) { fmt.Println(w.Result.Code, w.Result.Token) }))
	apply(&machine.Release{Session: id, Incarnation: k, Nonce: 1})
	// Output:
	// granted queued
	// granted 2
}

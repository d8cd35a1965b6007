package machine_test

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// A release and the grant to the next waiter are one Apply.
func Example() {
	m := machine.New()
	acquire := func(id engine.SessionID) machine.Result {
		opened, _ := m.Apply(&machine.OpenSession{Session: id, TTL: 10 * time.Second})
		result, _ := m.Apply(&machine.Acquire{Session: id, Incarnation: opened.Incarnation,
			Request: engine.Request{Nonce: 1, Resources: []fencing.Resource{"jobs/7"}, Mode: engine.Correctness, Wait: true}})
		return result
	}
	ann, bob := engine.SessionID{1}, engine.SessionID{2}
	first := acquire(ann)
	fmt.Println("ann:", first.Code, first.Token)
	fmt.Println("bob:", acquire(bob).Code)

	_, events := m.Apply(&machine.Release{Session: ann, Incarnation: m.SessionInfo(ann).Incarnation, Nonce: 1})
	for _, e := range events {
		if e.Type == machine.EventGranted {
			fmt.Println("bob is granted token", e.Token)
		}
	}

	copied, err := machine.Restore(m.Snapshot())
	fmt.Println(copied.Inspect("jobs/7").Holders[0].Token, err)
	// Output:
	// ann: granted 1
	// bob: queued
	// bob is granted token 2
	// 2 <nil>
}

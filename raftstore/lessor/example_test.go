package lessor_test

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/lessor"
	"github.com/leased-project/leased/raftstore/machine"
)

// The leader calls Due, waits, and proposes the commands that are due.
func Example() {
	start := engine.NewInstant(time.Unix(0, 0), 0)
	l := lessor.New(start, start, 1, false, lessor.ProofLife)
	id := engine.SessionID{1}
	l.Applied(start, &machine.OpenSession{Session: id, TTL: 10 * time.Second}, machine.Result{Code: machine.Done,
		Incarnation: 1}, nil)

	_, wait := l.Due(start)
	fmt.Println("wait", wait)
	later := start.Add(4 * time.Second)
	fmt.Println("renewed:", l.Renew(later, id, 1, 0))
	commands, _ := l.Due(later.Add(10 * time.Second))
	fmt.Printf("%T\n", commands[0])
	// Output:
	// wait 10s
	// renewed: true
	// *machine.Expire
}

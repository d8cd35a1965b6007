package quorum_test

import (
	"fmt"

	"github.com/leased-project/leased/redlockadapter/quorum"
)

// Two of three nodes accept an attempt with different tokens. The larger one is raised on
// the other node, and is then granted.
func ExampleAttempt() {
	a := quorum.NewAttempt(3)
	a.Ask(0b011)
	a.Answer(0, quorum.Vote{State: quorum.Accepted, Token: 5}, false)
	fmt.Printf("ask nodes %03b, too\n", a.Answer(1, quorum.Vote{State: quorum.Failed}, true).Acquire)
	send := a.Answer(2, quorum.Vote{State: quorum.Accepted, Token: 7}, false)
	for node := range send.Raise.Each {
		fmt.Printf("raise node %d to token %d\n", node, send.RaiseTo)
		a.Raised(node, send.RaiseTo, quorum.Vote{State: quorum.Accepted, Token: send.RaiseTo}, false)
	}
	fmt.Println("granted:", a.Outcome == quorum.Granted, "token:", a.Token)
	// Output:
	// ask nodes 100, too
	// raise node 0 to token 7
	// granted: true token: 7
}

func ExampleDecide() {
	accepted := quorum.Vote{State: quorum.Accepted, Token: 5}
	held := quorum.Vote{State: quorum.Held, Holder: "another session"}
	fmt.Println(quorum.Decide([]quorum.Vote{accepted, accepted, {}}, 0).Outcome == quorum.Granted)
	fmt.Println(quorum.Decide([]quorum.Vote{accepted, held, held}, 0).Outcome == quorum.Lost)
	fmt.Println(quorum.Decide([]quorum.Vote{accepted, held, {}}, 0).Outcome == quorum.Wait)
	// Output:
	// true
	// true
	// true
}

package quorum_test

import (
	"fmt"

	"github.com/leased-project/leased/redlockadapter/quorum"
)

// Two of three nodes accept an attempt with different tokens. The larger one is raised on
// the other node, and is then granted.
func ExampleAttempt() {
	a := quorum.NewAttempt(3)
	a.Answer(0, quorum.Vote{State: quorum.Accepted, Token: 5})
	a.Answer(1, quorum.Vote{State: quorum.Failed})
	for _, raise := range a.Answer(2, quorum.Vote{State: quorum.Accepted, Token: 7}) {
		fmt.Printf("raise node %d to token %d\n", raise.Node, raise.Token)
		a.Raised(raise.Node, raise.Token, quorum.Vote{State: quorum.Accepted, Token: raise.Token})
	}
	fmt.Println("granted:", a.Outcome() == quorum.Granted, "token:", a.Token())
	// Output:
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

package proposer_test

import (
	"fmt"

	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/proposer"
)

// Operations that arrive while an entry is in flight share the next one.
func Example() {
	const leadership = 1
	queue := proposer.NewQueue[string](100)
	queue.Add(proposer.Operation[string]{Command: &machine.Release{Nonce: 1}, Leadership: leadership, Caller: "ann"})
	first, _ := queue.Next(leadership)
	fmt.Println(len(first.Operations), "in the first entry")

	queue.Add(proposer.Operation[string]{Command: &machine.Release{Nonce: 1}, Leadership: leadership, Caller: "ben"})
	queue.Add(proposer.Operation[string]{Leadership: leadership, Caller: "a reader"}) // a barrier
	none, _ := queue.Next(leadership)
	fmt.Println("another entry:", none != nil)

	queue.Done() // the first entry was applied
	second, _ := queue.Next(leadership)
	second.Answer([]machine.Result{{Code: machine.Done}}, func(caller string, result machine.Result) {
		fmt.Println(caller, result.Code)
	})
	// Output:
	// 1 in the first entry
	// another entry: false
	// ben done
	// a reader done
}

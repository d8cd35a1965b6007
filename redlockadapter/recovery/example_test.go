package recovery_test

import (
	"fmt"

	"github.com/leased-project/leased/redlockadapter/recovery"
)

// One of three nodes restarts. Its new tokens start 2^32 above everything that a quorum
// reports.
func ExampleStandaloneFloor() {
	voter := recovery.Report{Reached: true, Live: &recovery.State{Version: 1, Fleet: "f", Max: 100}}
	restarted := recovery.Report{Reached: true, Former: &recovery.State{Version: 1, Fleet: "f", Max: 90}}
	unreachable := recovery.Report{}
	floor, ok := recovery.StandaloneFloor([]recovery.Report{voter, restarted, unreachable})
	fmt.Println(floor == 100+recovery.Jump, ok)
	// Output: true true
}

// A change of the topology is complete when a quorum has reached its goal.
func ExampleGoal() {
	goal := recovery.Goal{Version: 2, Fleet: "f", Lives: []string{"a.j", "b.j", "c.j"}, Floor: 10, Ceiling: 20}
	node := func(server string, version uint64) recovery.Report {
		return recovery.Report{Reached: true, Server: server, Live: &recovery.State{Version: version, Fleet: "f", Join: "j",
			Max: 10, Floor: 10, Ceiling: 20}}
	}
	reports := []recovery.Report{node("a", 2), node("b", 1), node("c", 1)}
	fmt.Println("met:", goal.Met(reports), "advance node 1:", goal.Next(1, reports[1]) == recovery.Advance)
	reports[1] = node("b", 2)
	fmt.Println("met:", goal.Met(reports))
	// Output:
	// met: false advance node 1: true
	// met: true
}

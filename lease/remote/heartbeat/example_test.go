package heartbeat_test

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/heartbeat"
)

// A member sends three messages and is then stopped.
func ExampleSilence() {
	var s heartbeat.Silence
	now := engine.NewInstant(time.Unix(0, 0), 0)
	for elapsed := time.Duration(0); ; elapsed += heartbeat.CheckInterval {
		received := min(uint64(elapsed/heartbeat.Interval)+1, 3) // one at 0 s, 0.5 s and 1 s
		if s.Check(now.Add(elapsed), received) {
			fmt.Println("silent after", elapsed)
			return
		}
	}
	// Output: silent after 2.5s
}

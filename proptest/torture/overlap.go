//go:build linux

package torture

import (
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// unpaused counts the overlaps that no pause explains: a client is granted a lock
// while a former holder, which is not stopped and was not resumed just now, has not
// ended its lease. The events are sorted by time. In correctness mode there is none
// while clocks run at one rate and every process runs in time; a busy machine delays
// processes, so overlaps are counted and are no violation.
func unpaused(events []property.Event) int {
	const awake = leaseTTL // by then a resumed holder has noticed that its lease is over
	holders := map[fencing.Resource]map[property.Attempt]string{}
	stopped, woken := map[string]bool{}, map[string]time.Duration{}
	n := 0
	for _, e := range events {
		switch e.Kind {
		case property.Paused:
			stopped[e.Who] = true
		case property.Resumed:
			delete(stopped, e.Who)
			woken[e.Who] = e.At
		case property.Ended:
			delete(holders[e.Resource], e.Attempt)
		case property.Acquired:
			for _, who := range holders[e.Resource] {
				if at, ok := woken[who]; !stopped[who] && (!ok || e.At-at > awake) {
					n++
				}
			}
			if holders[e.Resource] == nil {
				holders[e.Resource] = map[property.Attempt]string{}
			}
			holders[e.Resource][e.Attempt] = e.Who
		}
	}
	return n
}

//go:build linux

package torture

import (
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// unpaused counts the overlaps without a pause: a client is granted a lock while the lease
// of a former holder, which is not paused and was not resumed recently, has not ended. The
// events are sorted by time. In correctness mode there are none while clocks run at the
// same rate and no process is delayed. A busy host delays processes, so overlaps are
// counted and are not violations.
func unpaused(events []property.Event) int {
	const awake = leaseTTL // a resumed holder has noticed the end of its lease by then
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

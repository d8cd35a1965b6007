//go:build linux

package torture

import (
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/promise"
)

// unpaused counts the overlaps that no pause explains: a grant is told while a
// former holder, who is not stopped and was not just woken up, still believes in
// its own. The events are in the order of time. In the correctness mode there is
// none while clocks run at one rate and the machine runs every process in time;
// a busy machine does not, so that they are counted and not forbidden.
func unpaused(events []promise.Event) int {
	const awake = leaseTTL // after this a holder has noticed that its time is over
	believe := map[fencing.Resource]map[promise.Attempt]string{}
	stopped, woken := map[string]bool{}, map[string]time.Duration{}
	n := 0
	for _, e := range events {
		switch e.Kind {
		case promise.Paused:
			stopped[e.Who] = true
		case promise.Resumed:
			delete(stopped, e.Who)
			woken[e.Who] = e.At
		case promise.Ended:
			delete(believe[e.Resource], e.Attempt)
		case promise.Told:
			for _, who := range believe[e.Resource] {
				if at, ok := woken[who]; !stopped[who] && (!ok || e.At-at > awake) {
					n++
				}
			}
			if believe[e.Resource] == nil {
				believe[e.Resource] = map[promise.Attempt]string{}
			}
			believe[e.Resource][e.Attempt] = e.Who
		}
	}
	return n
}

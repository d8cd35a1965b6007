package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// Five nodes are restarted once a week for ten years, locks migrate to the other mode and back, and a million locks are
// granted in each week. A gate still admits the next token for a resource that was never fenced.
func TestWeeklyRestartsDoNotWearOutTheBound(t *testing.T) {
	const weeks, grants = 10 * 52, 1_000_000
	five := engine.Fleet{Namespace: "n", Addresses: []string{"a:1", "b:1", "c:1", "e:1", "f:1"}, MaxTTL: maxTTL}
	w := newWorldOf(t, five)
	policy := engine.Policy{Prefix: "p/", Mode: engine.Efficiency}
	for range weeks {
		for _, address := range five.Addresses {
			for _, voter := range five.Addresses { // a quorum accepts each token
				w.at[voter].live.Max += grants / 5
			}
			w.restart(address)
			w.used = nil // the sets of lives of earlier restarts are closed
			for w.at[address].live == nil || len(w.log.Efficiency().Open) > 0 || w.step(-1) {
				w.step(-1)
			}
		}
		w.apply(&machine.SetPolicy{Policy: policy, Now: true})
		policy.Mode = engine.Efficiency + engine.Correctness - policy.Mode
		for len(w.log.Efficiency().Migrations) > 0 {
			w.step(-1)
		}
		w.now += 6 * 24 * time.Hour
	}
	w.requireRecovered()
	largest := w.log.LastToken()
	for _, address := range five.Addresses {
		largest = max(largest, w.at[address].live.Max)
	}
	t.Logf("%d restarts: the largest token is %d, the ceiling %d", weeks*5, largest, w.log.Ceiling())
	require.NoError(t, fencing.Rule{}.Admit("never fenced before", fencing.None, largest+1))
	require.Less(t, largest, fencing.Token(2*weeks*grants), "tokens grow with the grants")
	require.Less(t, w.log.Ceiling(), largest+2*jump, "and the ceiling follows them")
}

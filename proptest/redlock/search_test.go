package redlock

import (
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/proptest/property"
)

func TestStateHasNoPadding(t *testing.T) {
	var w State
	require.EqualValues(t, 1, unsafe.Alignof(w), "all fields must be bytes, so that equal states have equal memory")
}

// soaking selects all bounds with a budget of 40,000,000 states each, which takes an hour.
var soaking = os.Getenv("LEASED_SOAK") != ""

// budgets returns the limits of a search and of the random walks: the states near the
// initial one in a plain go test, and more in make prop.
func budgets() (states, walks int) {
	switch {
	case soaking:
		return 40_000_000, 30_000
	case property.Full():
		return 400_000, 2_000
	case raced:
		return 8_000, 50
	}
	return 100_000, 300
}

// TestEveryInterleaving visits all states within the bounds, up to the budget. With -v it reports the bounds that have
// no further states, and those of which it has visited only a part.
func TestEveryInterleaving(t *testing.T) {
	var mu sync.Mutex
	var finished, cut []string
	t.Cleanup(func() { t.Logf("finished: %q; stopped at the budget: %q", finished, cut) })
	all := searched
	if soaking {
		all = append(all, soaked...)
	}
	for _, b := range all {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			s := NewSearch(b)
			s.Most, _ = budgets()
			err := s.Run()
			mu.Lock()
			defer mu.Unlock()
			if err == errMost {
				cut = append(cut, b.Name)
				t.Logf("%d states, no violation; there are more", s.Visited)
				return
			}
			require.NoError(t, err)
			finished = append(finished, b.Name)
			t.Logf("all %d states, no violation", s.Visited)
		})
	}
}

// TestRandomWalks reaches deeper states than the exhaustive search.
func TestRandomWalks(t *testing.T) {
	_, walks := budgets()
	for _, b := range walked {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			s := NewSearch(b)
			for seed := range uint64(walks) {
				require.NoError(t, s.Walk(rand.New(rand.NewPCG(seed, 1)), 150), "seed %d", seed)
			}
			t.Logf("%d steps in %d walks, no violation", s.Visited, walks)
		})
	}
}

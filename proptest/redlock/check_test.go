package redlock

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestWorldHasNoPadding(t *testing.T) {
	var w World
	require.EqualValues(t, 1, unsafe.Alignof(w), "every field is of bytes, so that equal worlds have equal memory")
}

// TestEveryInterleaving visits all worlds within the bounds. A bound that ends
// in joins allows that many tries to bring nodes back.
func TestEveryInterleaving(t *testing.T) {
	type bounds struct {
		nodes, attempts, losses, restarts, joins int
		renew, back                              bool
	}
	all := []bounds{{3, 2, 0, 0, 0, true, false}, {3, 2, 1, 0, 1, true, true}, {3, 2, 0, 2, 1, false, false}, {3, 3, 0, 0, 0, false, false}}
	if raced { // make prop searches the rest
		all = all[:1]
	}
	if os.Getenv("LEASED_SOAK") != "" { // 28 million worlds, more than two minutes
		all = append(all, bounds{3, 2, 2, 0, 2, false, false})
	}
	for _, c := range all {
		name := fmt.Sprintf("%d nodes, %d attempts, %d losses, %d restarts, %d joins, renew %v, old data %v", c.nodes, c.attempts, c.losses, c.restarts, c.joins, c.renew, c.back)
		t.Run(name, func(t *testing.T) {
			s := Search{Attempts: c.attempts, Joins: c.joins, Renew: c.renew, Back: c.back}
			w := NewWorld(c.nodes, c.losses)
			w.Restarts = uint8(c.restarts)
			require.NoError(t, s.Run(w))
			t.Logf("%d worlds, no violation", s.Visited)
		})
	}
}

// TestRandomWalks goes beyond the bounds of the exhaustive search.
func TestRandomWalks(t *testing.T) {
	for _, c := range []struct{ nodes, attempts, losses, restarts, joins, walks int }{
		{3, 3, 0, 0, 0, 3_000}, {3, 2, 1, 0, 1, 20_000}, {3, 3, 2, 0, 3, 10_000}, {3, 3, 0, 3, 3, 10_000}, {5, 3, 3, 0, 3, 3_000}, {5, 3, 0, 4, 3, 3_000},
	} {
		t.Run(fmt.Sprintf("%d nodes, %d attempts, %d losses, %d restarts", c.nodes, c.attempts, c.losses, c.restarts), func(t *testing.T) {
			if raced {
				c.walks /= 10
			}
			s := Search{Attempts: c.attempts, Joins: c.joins, Renew: c.losses == 0, Back: c.losses > 0}
			for seed := range uint64(c.walks) {
				w := NewWorld(c.nodes, c.losses)
				w.Restarts = uint8(c.restarts)
				require.NoError(t, s.Walk(w, rand.New(rand.NewPCG(seed, 1)), 150), "seed %d", seed)
			}
			t.Logf("%d steps in %d walks, no violation", s.Visited, c.walks)
		})
	}
}

package redlock

import (
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestStateHasNoPadding(t *testing.T) {
	var w State
	require.EqualValues(t, 1, unsafe.Alignof(w), "every field is of bytes, so that equal states have equal memory")
}

// TestEveryInterleaving visits all states within the bounds.
func TestEveryInterleaving(t *testing.T) {
	all := searched
	if raced { // make prop searches the rest
		all = all[1:3]
	}
	if os.Getenv("LEASED_SOAK") != "" {
		all = append(all, soaked...)
	}
	for _, b := range all {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			s := NewSearch(b)
			s.Most = 40_000_000 // what memory has room for
			if err := s.Run(); err != errMost {
				require.NoError(t, err)
			}
			t.Logf("%d states, no violation", s.Visited)
		})
	}
}

// TestRandomWalks goes beyond the bounds of the exhaustive search.
func TestRandomWalks(t *testing.T) {
	walks := 3_000
	if raced {
		walks = 100
	}
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

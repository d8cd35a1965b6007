package redlock

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestStateHasNoPadding(t *testing.T) {
	var w State
	require.EqualValues(t, 1, unsafe.Alignof(w), "every field is of bytes, so that equal states have equal memory")
}

func TestTry(t *testing.T) {
	for _, b := range []Bounds{
		{Name: "2 attempts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Fail: true, Renew: true, Idle: true},
		{Name: "move", Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1},
		{Name: "loss", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Losses: 1, Ranges: 1},
		{Name: "standalone 1", Nodes: 3, Attempts: 2, Standalone: true, Losses: 1, Former: true},
	} {
		t.Run(b.Name, func(t *testing.T) {
			s := NewSearch(b)
			s.Most = 6_000_000
			began := time.Now()
			err := s.Run()
			t.Logf("%d states in %v, %v", s.Visited, time.Since(began), err)
		})
	}
}

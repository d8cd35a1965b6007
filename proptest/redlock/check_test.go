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

var tries = []Bounds{
	{Name: "2 attempts all", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Fail: true, Renew: true, Idle: true, Copies: true},
	{Name: "3 attempts", Nodes: 3, Attempts: 3, Mode: efficiency, Ceiling: 8},
	{Name: "1 loss", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Losses: 1, Ranges: 1, Fail: true, Renew: true},
	{Name: "2 losses", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Losses: 2, Ranges: 2},
	{Name: "E C E 1 attempt", Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 3, Moves: 2, Aborts: 1, Grants: 2, Late: true, Renew: true},
	{Name: "E C E 2 attempts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Moves: 2, Grants: 1},
	{Name: "E C 2 attempts", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1, Fail: true},
	{Name: "C E C", Nodes: 3, Attempts: 2, Mode: correctness, Ceiling: 3, Moves: 2, Aborts: 1, Grants: 2},
	{Name: "E C with loss 1", Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 3, Moves: 2, Grants: 2, Losses: 2, Ranges: 2},
	{Name: "E C with loss 2", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1, Losses: 1, Ranges: 1},
	{Name: "fleet 1", Nodes: 4, Attempts: 1, Mode: efficiency, Ceiling: 3, Fleets: []uint8{0b0111, 0b1110}, Changes: 1, Ranges: 3},
	{Name: "fleet 2", Nodes: 4, Attempts: 2, Mode: efficiency, Ceiling: 3, Fleets: []uint8{0b0111, 0b1110}, Changes: 1, Ranges: 2},
	{Name: "fleet single", Nodes: 2, Attempts: 3, Mode: efficiency, Ceiling: 3, Fleets: []uint8{0b01, 0b10}, Changes: 2, Ranges: 3, Losses: 1, Moves: 1, Grants: 1},
	{Name: "standalone 1", Nodes: 3, Attempts: 2, Standalone: true, Losses: 1, Former: true},
	{Name: "standalone 2 nothing", Nodes: 3, Attempts: 2, Standalone: true, Losses: 2},
	{Name: "standalone single", Nodes: 1, Attempts: 3, Standalone: true, Losses: 3, Former: true},
	{Name: "restore C", Nodes: 3, Attempts: 1, Mode: correctness, Ceiling: 3, Moves: 2, Grants: 2, Restores: 1},
	{Name: "restore E", Nodes: 3, Attempts: 2, Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1, Restores: 1},
	{Name: "restore loss", Nodes: 3, Attempts: 1, Mode: efficiency, Ceiling: 3, Moves: 1, Grants: 1, Restores: 1, Losses: 1, Ranges: 1, Former: true},
}

func TestTry(t *testing.T) {
	for _, b := range tries {
		t.Run(b.Name, func(t *testing.T) {
			s := NewSearch(b)
			s.Most = 4_000_000
			began := time.Now()
			err := s.Run()
			t.Logf("%s: %d states in %v, %v", b.Name, s.Visited, time.Since(began), err)
		})
	}
	for _, b := range controls {
		b.Broken = Sound
		t.Run("sound: "+b.Name, func(t *testing.T) {
			s := NewSearch(b)
			s.Most = 1_000_000
			began := time.Now()
			err := s.Run()
			t.Logf("%s: %d states in %v, %v", b.Name, s.Visited, time.Since(began), err)
		})
	}
}

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
)

// The state of a node says what is wrong with it, and with it alone.
func TestStateOfANode(t *testing.T) {
	for want, n := range map[string]*pb.RedisNode{
		"votes":                          {},
		"empty":                          {Empty: true},
		"empty, votes in 2s":             {Empty: true, Quarantine: "2s"},
		"unreachable: dial tcp: a; b":    {Error: "dial tcp: a\nb"},
		"refuses: WRONGPASS invalid":     {Error: "WRONGPASS invalid"},
		"refuses: NOAUTH Authentication": {Error: "NOAUTH Authentication"},
	} {
		require.Equal(t, want, stateOf(n))
	}
}

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
)

func TestStateOfNode(t *testing.T) {
	for want, n := range map[string]*pb.RedisNode{
		"votes":                                {},
		"empty":                                {Empty: true},
		"empty, votes in 2s":                   {Empty: true, Quarantine: "2s"},
		"unreachable: dial tcp: a; b":          {Error: "dial tcp: a\nb"},
		"access denied: WRONGPASS invalid":     {Error: "WRONGPASS invalid"},
		"access denied: NOAUTH Authentication": {Error: "NOAUTH Authentication"},
	} {
		require.Equal(t, want, stateOf(n))
	}
}

package testserver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFreeAddrReturnsEachAddressOnce(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		addr := FreeAddr(t)
		require.False(t, seen[addr], "%s came twice", addr)
		seen[addr] = true
	}
}

package redisconn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A server has one address at a time, and two servers that swap their addresses are both used
// again.
func TestServersSwapAddresses(t *testing.T) {
	t.Parallel()
	s := NewServers()
	require.Equal(t, "a:1", s.claim("one", "a:1"))
	require.Equal(t, "b:1", s.claim("two", "b:1"))
	require.Equal(t, "a:1", s.claim("one", "b:1"), "a server has one vote")

	s = NewServers()
	s.claim("one", "a:1")
	s.claim("two", "b:1")
	require.Equal(t, "b:1", s.claim("two", "a:1"), "its old address has not been checked yet")
	require.Equal(t, "b:1", s.claim("one", "b:1"))
	require.Equal(t, "a:1", s.claim("two", "a:1"))
}

package transport_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// Idle connections without a certificate do not keep a peer from connecting: the oldest of
// them are closed.
func TestIdleConnectionsGiveWay(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	n1, n2 := listen(t, a, "n1"), listen(t, a, "n2")
	require.NoError(t, n2.call(n1, "n1"))
	for range 600 { // more than twice the bound
		idle, err := net.Dial("tcp", string(n1.LocalAddr()))
		require.NoError(t, err)
		t.Cleanup(func() { idle.Close() })
	}
	n3 := listen(t, a, "n3")
	require.NoError(t, n3.call(n1, "n1"))
	require.NoError(t, n2.call(n1, "n1"), "its connection is open")
	require.EqualValues(t, 3, n1.received.Load())
	require.Eventually(t, func() bool {
		return strings.Contains(n1.log.String(), "closed the oldest")
	}, time.Minute, time.Millisecond)
}

//go:build linux

package abuse

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// Waiters in efficiency mode whose connections vanish leave no file or goroutine
// behind, and get no lease. The other client uses a lock in correctness mode.
func TestVanishingWaitersInEfficiencyMode(t *testing.T) {
	const wave = 500
	redis := testserver.Redis(t)
	s := start(t, "--redis="+redis.Addr, "--redis-max-ttl=5m")
	s.call("/v1/set-policy", `{"policy":{"prefix":"lock","mode":"efficiency"}}`)
	var held answer
	eventually(t, "a lock in efficiency mode is granted", func() bool {
		held = s.post("", "/v1/acquire", `{"resource":"lock","ttl":"2m","mode":"efficiency"}`)
		return held.status == http.StatusOK
	})
	files, before := s.files(), s.memory("VmRSS")
	others := s.bystander()
	conns := make([]net.Conn, *scale)
	for i := range conns {
		conns[i] = s.connect(s.api)
		_, err := io.WriteString(conns[i], requestText("/v1/acquire", `{"resource":"lock","ttl":"2m","wait":"10m"}`))
		require.NoError(t, err)
		if n := i + 1; n%wave == 0 || n == len(conns) {
			eventually(t, "the server has accepted all", func() bool { return s.files() >= files+n })
		}
	}
	during := s.memory("VmRSS")
	for _, conn := range conns {
		conn.Close()
	}
	eventually(t, "their connections are closed", func() bool { return s.files() <= files+10 })
	served := others.end()
	eventually(t, "the lock is released", func() bool { // on a busy machine the Redis node may answer too late
		return s.post("", "/v1/release", fmt.Sprintf(`{"resource":"lock","token":%.0f}`,
			held.fields["token"])).status == http.StatusOK
	})
	eventually(t, "no waiter that is gone keeps the lock", func() bool {
		return s.post("", "/v1/acquire", `{"resource":"lock","ttl":"2m"}`).status == http.StatusOK
	})
	t.Logf("%d vanishing waiters in efficiency mode: memory %s before, %s during, %s after; %s", len(conns), size(before),
		size(during), size(s.memory("VmRSS")), served)
	require.Less(t, during, before+64*mib+len(conns)*256<<10)
	require.Less(t, s.goroutines(), 300, "goroutines stay behind")
}

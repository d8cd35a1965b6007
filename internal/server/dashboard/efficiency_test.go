package dashboard_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Without Redis nodes that answer, the page says that efficiency mode is not ready, that a
// lock is migrating, and why, in short texts.
func TestUnreachableRedis(t *testing.T) {
	t.Parallel()
	m := startMember(t, "n1", "")
	m.post(t, "set-fleet", "", map[string]any{"force": true,
		"fleet": map[string]any{"namespace": "test", "maxTtl": "1m", "addresses": []string{"127.0.0.1:1", "127.0.0.1:2",
			"127.0.0.1:3"}}})
	p := open(t, m, "#/cluster")
	p.shows(".cluster .totals .bad", "0 of 3")
	p.shows(".cluster .message.bad[role=status]", "Efficiency mode is not ready: 0 of 3 Redis nodes vote, 2 are needed.")

	m.post(t, "set-policy", "", map[string]any{"policy": map[string]any{"prefix": "fast/", "mode": "efficiency",
		"ttl": "10s"}})
	value[bool](p, `(location.hash = "#/lock/fast%2Fa", true)`)
	p.shows(".lock .message.warn", "The lock is migrating from correctness to efficiency mode")
	p.shows(".lock .message.warn", "Clients that wait try again by themselves")
	p.lacks("Nobody waits")
	m.post(t, "abort-migration", "", map[string]any{"prefix": "fast/"})
	p.until(`document.querySelector(".lock .message.warn").hidden`)
	p.shows(".lock", "Nobody waits for this lock.")
	require.Empty(t, p.console())
}

package server_test

import (
	"testing"
)

// TestAMemberThatMovedIsFound: a follower whose API is elsewhere after a restart
// tells the leader, and all members know.
func TestAMemberThatMovedIsFound(t *testing.T) {
	c := startCluster(t, 3)
	moved := c.follower()
	moved.kill()
	moved.spec.API = freePort(t)
	moved.start()
	for _, m := range c.members {
		eventually(t, "all know the new address", func() bool {
			members, _ := m.status()["members"].([]any)
			for _, other := range members {
				if other := other.(map[string]any); m != moved && other["id"] == moved.spec.ID {
					return other["apiAddress"] == moved.spec.API
				}
			}
			return m == moved
		})
	}
}

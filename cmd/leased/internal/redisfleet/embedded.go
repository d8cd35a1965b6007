package redisfleet

import (
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// startEmbedded starts an imitation of a Redis master in this process.
func (f *Fleet) startEmbedded() error {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return fmt.Errorf("start an embedded Redis: %w", err)
	}
	m.Server().SetPreHook(introduce(lease.NewSessionID().String()))
	f.Addrs, f.stop = append(f.Addrs, m.Addr()), append(f.stop, m.Close)
	// It has forgotten which tokens it gave out. The milliseconds since 1970
	// are above them all, unless there were more than a thousand in a second.
	f.Floor = max(f.Floor, fencing.Token(time.Now().UnixMilli()))
	return nil
}

// introduce answers what the imitation does not know of itself.
func introduce(runID string) server.Hook {
	info := strings.Join([]string{"redis_version:7.0.0", "cluster_enabled:0", "role:master", "maxmemory_policy:noeviction",
		"aof_enabled:0", "run_id:" + runID, ""}, "\r\n")
	return func(c *server.Peer, command string, args ...string) bool {
		switch strings.ToUpper(command) {
		case "INFO":
			c.WriteBulk(info)
			return true
		case "CONFIG":
			c.WriteLen(0)
			return true
		}
		return false
	}
}

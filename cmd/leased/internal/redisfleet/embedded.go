package redisfleet

import (
	"fmt"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/leased-project/leased/lease/engine"
)

// startEmbedded starts an imitation of a Redis master in this process.
func (f *Fleet) startEmbedded() error {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return fmt.Errorf("start an embedded Redis: %w", err)
	}
	m.Server().SetPreHook(introduce(engine.NewSessionID().String()))
	f.Addrs, f.stop = append(f.Addrs, m.Addr()), append(f.stop, m.Close)
	return nil
}

// introduce answers what the imitation does not know of itself.
func introduce(runID string) server.Hook {
	info := strings.Join([]string{"redis_version:7.0.0", "cluster_enabled:0", "role:master", "connected_slaves:0",
		"maxmemory_policy:noeviction", "run_id:" + runID, "master_replid:" + runID, ""}, "\r\n")
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

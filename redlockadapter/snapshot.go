package redlockadapter

import (
	"context"
	"errors"
	"strconv"

	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// snapshot is a request to a server to write an RDB snapshot, so that a reserved floor
// survives a restart of the server. A server with an append-only file needs none: the
// floor is on disk long before the quarantine ends.
type snapshot struct {
	requested bool
	before    int64 // the number of snapshots that were written before
	done      bool
}

// advance takes the next step. A server that cannot write a snapshot stores nothing, so
// it cannot restart with older data. That is logged and counts as done.
func (s *snapshot) advance(ctx context.Context, n *redisconn.Conn, warn func(msg string, args ...any)) {
	if s.done {
		return
	}
	info, err := n.Info(ctx)
	if err != nil {
		return // the next look tries again
	}
	written, err := strconv.ParseInt(info["rdb_saves"], 10, 64)
	switch {
	case info["aof_enabled"] == "1" || err != nil: // err: a server without snapshots
		s.done = true
	case info["rdb_bgsave_in_progress"] == "1": // possibly one that started too early
	case !s.requested:
		_, err := n.Do(ctx, redisconn.NewCommand("bgsave"))
		var refused redisconn.RedisError
		if errors.As(err, &refused) {
			warn("a Redis node refuses to save its token floor; allow BGSAVE to its user, or enable the append-only file", "node", n.Addr(), "error", err)
			s.done = true
		}
		s.requested, s.before = err == nil, written
	case info["rdb_last_bgsave_status"] != "ok":
		warn("a Redis node failed to write a snapshot; its token floor is in memory only", "node", n.Addr())
		s.done = true
	default:
		s.done = written > s.before
	}
}

package redlockadapter

import (
	"context"
	"errors"
	"strconv"
)

// saving is a snapshot that a server was asked to write, so that a reserved floor
// outlives the server. A server with an append-only file needs none: it has the
// floor on disk long before the quarantine ends.
type saving struct {
	started bool
	before  int64 // snapshots that the server had written before
	done    bool
}

// advance looks at the server and takes the next step. A server that cannot write a
// snapshot keeps nothing, so nothing old can come back from it either: that is
// logged, and counts as done.
func (s *saving) advance(ctx context.Context, n *node, warn func(msg string, args ...any)) {
	if s.done {
		return
	}
	got, err := n.do(ctx, infoRequest())
	if err != nil {
		return // the next look tries again
	}
	f := parseInfo(got.word(0))
	written, err := strconv.ParseInt(f["rdb_saves"], 10, 64)
	switch {
	case f["aof_enabled"] == "1" || err != nil: // a server without snapshots
		s.done = true
	case f["rdb_bgsave_in_progress"] == "1": // ours, or one that began too early
	case !s.started:
		_, err := n.do(ctx, &request{plain: "*1\r\n$6\r\nbgsave\r\n"})
		var refused redisError
		if errors.As(err, &refused) {
			warn("a Redis node cannot save what it must not forget; let its user run BGSAVE, or switch the append-only file on", "node", n.addr, "error", err)
			s.done = true
		}
		s.started, s.before = err == nil, written
	case f["rdb_last_bgsave_status"] != "ok":
		warn("a Redis node failed to write a snapshot; what it must not forget is in its memory only", "node", n.addr)
		s.done = true
	default:
		s.done = written > s.before
	}
}

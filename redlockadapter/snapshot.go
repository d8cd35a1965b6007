package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// errNotSaved reports a server that cannot write its data to disk.
var errNotSaved = errors.New("the floor is not saved to disk")

// appendTime is the time after which an append-only file is on disk: it is synced once per
// second, or more often.
const appendTime = 2 * time.Second

// maxRefusals is the number of refused saves after which a server counts as unable to save.
const maxRefusals = 3

// snapshot is a request to a server to write an RDB snapshot, so that a reserved floor
// survives a restart of the server. A server with an append-only file needs none.
type snapshot struct {
	server    redisconn.Bound // that reserved the floor
	floor     fencing.Token
	reserved  engine.Instant // when it was known to be reserved, or the append-only file to be rewritten
	requested bool
	refused   int
	before    int64 // the number of snapshots that were written before
	done      bool
}

// advance takes the next step, and returns why the floor is not on disk. A server that
// cannot save is asked again: it may have older data on disk, and restart with that.
func (s *snapshot) advance(ctx context.Context, now engine.Instant) error {
	n := s.server
	if s.done {
		return nil
	}
	info, err := n.Info(ctx)
	if err != nil {
		return err
	}
	written, err := strconv.ParseInt(info["rdb_saves"], 10, 64)
	switch {
	case info["aof_enabled"] == "1":
		if status := info["aof_last_write_status"]; status != "ok" {
			return fmt.Errorf("%s: %w: its last write to the append-only file failed (%s); see the log of the server", n.Addr(),
				errNotSaved, status)
		}
		if info["aof_rewrite_in_progress"] == "1" || info["aof_rewrite_scheduled"] == "1" {
			s.reserved = now // a file that was just enabled is not complete, and none needs to be synced meanwhile
		}
		s.done = now.Since(s.reserved) > appendTime && info["aof_pending_bio_fsync"] == "0"
	case err != nil: // every Redis and Valkey that may be a node has it; others may save nothing
		return fmt.Errorf("%s: %w: its INFO has no rdb_saves, which tells that a snapshot was written; use Redis or Valkey, "+
			"or enable the append-only file", n.Addr(), errNotSaved)
	case info["rdb_bgsave_in_progress"] == "1": // possibly one that started too early
	case !s.requested:
		_, err := n.Do(ctx, redisconn.NewCommand("bgsave"))
		s.requested, s.before = err == nil, written
		var refused redisconn.RedisError
		if errors.As(err, &refused) {
			s.refused++ // possibly because another save has just started
		}
		if err != nil && s.refused >= maxRefusals || errors.Is(err, redisconn.ErrNotPermitted) {
			return fmt.Errorf("%w: %w; allow BGSAVE to the user of this program (ACL rule +bgsave), or enable the "+
				"append-only file", errNotSaved, err)
		}
		return err
	case info["rdb_last_bgsave_status"] != "ok":
		s.requested = false
		return fmt.Errorf("%s: %w: it failed to write a snapshot; see the log of the server", n.Addr(), errNotSaved)
	default:
		s.done = written > s.before
	}
	return nil
}

package remote

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// ErrSilent means that a member sends nothing although its connection is open. What was
// sent to it may or may not have had an effect.
var ErrSilent = fmt.Errorf("%w: the member does not answer", engine.ErrUncertain)

// WatchSilence returns ErrSilent when the member at the other end of a connection is
// silent, or the cause when ctx ends. For that it opens a session stream and receives its
// heartbeats. A member that refuses the stream, or ends it, has answered: WatchSilence
// opens the next one, since the member may fall silent later.
func WatchSilence(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var received atomic.Uint64
	go func() {
		ticker := time.NewTicker(clientcore.SilenceCheckInterval)
		defer ticker.Stop()
		clock := engine.MonotonicClock()
		for silence := (clientcore.Silence{}); !silence.Check(clock.Now(), received.Load()); {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
		cancel(ErrSilent)
	}()
	again := time.NewTicker(clientcore.HeartbeatInterval)
	defer again.Stop()
	for ctx.Err() == nil {
		stream, err := pb.NewLeaseServiceClient(conn).Session(ctx)
		for err == nil {
			_, err = stream.Recv()
			received.Add(1)
		}
		received.Add(1)
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
	return engine.Cause(ctx)
}

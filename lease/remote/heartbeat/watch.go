package heartbeat

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// ErrSilent means that a member sends nothing although its connection is open. What was
// sent to it may or may not have had an effect.
var ErrSilent = fmt.Errorf("%w: the member does not answer", engine.ErrUncertain)

// Watch returns ErrSilent when the member at the other end of a connection is silent, or the
// cause when ctx ends. It opens a session stream for its heartbeats alone. A member that
// refuses the stream, or ends it, has answered: Watch opens the next one after Interval, since
// the member may fall silent later.
func Watch(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var received atomic.Uint64
	go func() {
		if Await(ctx.Done(), engine.MonotonicClock(), received.Load) {
			cancel(ErrSilent)
		}
	}()
	again := time.NewTicker(Interval)
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
	return context.Cause(ctx)
}

// Await returns true when no message was received for too long, and false when done is
// closed before.
func Await(done <-chan struct{}, clock engine.Clock, received func() uint64) bool {
	ticker := time.NewTicker(CheckInterval)
	defer ticker.Stop()
	for silence := (Silence{}); !silence.Check(clock.Now(), received()); {
		select {
		case <-ticker.C:
		case <-done:
			return false
		}
	}
	return true
}

package leases

import (
	"context"
	"fmt"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// watchCheck is the time between two checks that this member leads and the session is open.
	watchCheck = 100 * time.Millisecond
	// watchAlive is the time between two messages, so that a client notices a broken connection.
	watchAlive = 2 * time.Second
	// maxLosses bounds the losses that wait for a slow client.
	maxLosses = 1000
)

// loss is a lease that was lost.
type loss struct {
	nonce engine.Nonce
	err   error
}

// WatchSession sends the losses of a session, until it ends or this member does not lead. It
// does not keep the session alive.
func (s *Service) WatchSession(r *pb.WatchSessionRequest, stream pb.LeaseService_WatchSessionServer) error {
	id, err := engine.ParseSessionID(r.SessionId)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	losses := make(chan loss, maxLosses)
	found, err := s.attach(ctx, id, func(nonce engine.Nonce, err error) {
		select {
		case losses <- loss{nonce, err}:
		default:
			cancel(fmt.Errorf("%w: %d losses wait to be read; watch the session again", engine.ErrUnavailable, maxLosses))
		}
	})
	if err != nil {
		return err
	}
	defer found.Detach()
	holds, err := found.Holds() // what is lost from here on is in losses
	if err != nil {
		return err
	}
	synced, tokens := &pb.SessionEvent{Type: "synced"}, map[engine.Nonce]uint64{}
	for _, h := range holds {
		synced.Tokens = append(synced.Tokens, uint64(h.Token))
		tokens[h.Nonce] = uint64(h.Token)
	}
	if err := stream.Send(synced); err != nil {
		return err
	}
	alive, check := time.NewTicker(watchAlive), time.NewTicker(watchCheck)
	defer alive.Stop()
	defer check.Stop()
	for {
		select {
		case l := <-losses:
			err = stream.Send(&pb.SessionEvent{Type: "lost", Nonce: uint64(l.nonce), Token: tokens[l.nonce],
				Error: wire.FromError(l.err)})
		case <-alive.C:
			err = stream.Send(&pb.SessionEvent{Type: "alive"})
		case <-check.C:
			if len(losses) == 0 {
				_, err = found.Attempt(0) // does this member lead, and is the session open?
			}
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

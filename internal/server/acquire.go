package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

// unary is one call of Acquire, outside of a stream.
type unary struct {
	service *service
	request lease.Request
	wait    time.Duration
	entry   *entry
	single  bool // the session was opened for this call
	named   bool // the caller knows the nonce
}

// Acquire asks for a lock.
func (s *service) Acquire(ctx context.Context, r *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	u, err := s.newUnary(ctx, r)
	if err != nil {
		return nil, err
	}
	grant, err := u.run(ctx)
	if err != nil {
		u.giveUp(ctx, err)
		return nil, u.sayWho(ctx, err)
	}
	response := &pb.AcquireResponse{Token: uint64(grant.Token), SessionId: u.entry.id.String(), Nonce: uint64(u.request.Nonce),
		Mode: wire.ModeText(grant.Mode), Holder: u.request.Holder, Ttl: wire.DurationText(u.entry.ttl), Slot: int32(grant.Slot)}
	for _, name := range u.request.Resources {
		response.Resources = append(response.Resources, string(name))
	}
	if response.Resource = r.Resource; r.Resource == "" {
		response.Resource = response.Resources[0]
	}
	return response, nil
}

// newUnary checks a call, then finds or opens its session.
func (s *service) newUnary(ctx context.Context, r *pb.AcquireRequest) (*unary, error) {
	names := r.Resources
	if r.Resource != "" {
		names = append([]string{r.Resource}, names...)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: resource must be given, the name of a lock; or resources, for a set", lease.ErrInvalid)
	}
	u := &unary{service: s, named: r.Nonce != 0, request: lease.Request{Nonce: lease.Nonce(r.Nonce), Resources: wire.Resources(names...), Permits: int(r.Permits),
		Holder: r.Holder, Metadata: r.Metadata}}
	var err error
	if u.request.Kind, err = wire.Kind(r); err != nil {
		return nil, err
	}
	if u.request.Mode, err = wire.ParseMode(r.Mode); err != nil {
		return nil, err
	}
	if u.wait, err = wire.ParseDuration("wait", r.Wait); err != nil {
		return nil, err
	}
	u.request.Wait = u.wait > 0
	if u.request.Nonce == 0 {
		u.request.Nonce = 1 // of a new session; else it is replaced
	}
	if err := u.request.Validate(); err != nil {
		return nil, err
	}
	switch {
	case r.Nonce > math.MaxUint32:
		return nil, fmt.Errorf("%w: nonce (%d) must be below 2^32", lease.ErrInvalid, r.Nonce)
	case r.SessionId != "" && r.Ttl != "":
		return nil, fmt.Errorf("%w: ttl (%s) with sessionId: the session has its own", lease.ErrInvalid, r.Ttl)
	case r.SessionId == "" && r.Nonce != 0:
		return nil, fmt.Errorf("%w: nonce (%d) without sessionId: open a session first", lease.ErrInvalid, r.Nonce)
	case r.SessionId == "":
		return u, u.openSingle(ctx, r.Ttl)
	}
	id, err := lease.ParseSessionID(r.SessionId)
	if err != nil {
		return nil, err
	}
	if u.entry, err = s.sessions.attach(ctx, id); err != nil {
		return nil, err
	}
	if r.Nonce == 0 {
		u.request.Nonce, err = u.entry.nextNonce(ctx)
	}
	return u, err
}

// openSingle opens a session for this lease.
func (u *unary) openSingle(ctx context.Context, text string) error {
	ttl, err := ttlOr(text, u.service.router.local().policies.For(u.request.Resources[0]).TTL)
	if err != nil {
		return err
	}
	u.single = true
	u.entry, err = u.service.sessions.open(ctx, newSingleID(), ttl)
	return err
}

// run asks, and keeps the session alive while it waits: the open call is the
// sign of life.
func (u *unary) run(ctx context.Context) (lease.Grant, error) {
	if !u.request.Wait {
		return u.entry.Acquire(ctx, u.request)
	}
	waitCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(u.wait, func() { cancel(fmt.Errorf("%w: waited %v", lease.ErrHeld, u.wait)) })
	defer limit.Stop()
	type outcome struct {
		grant lease.Grant
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		grant, err := u.entry.Acquire(waitCtx, u.request)
		done <- outcome{grant, err}
	}()
	alive := time.NewTicker(u.entry.ttl / 3)
	defer alive.Stop()
	for {
		select {
		case out := <-done:
			if cause := context.Cause(waitCtx); out.err != nil && ctx.Err() == nil && errors.Is(cause, lease.ErrHeld) {
				out.err = cause
			}
			if out.err == nil { // its time begins with the answer
				_, out.err = u.entry.Renew(ctx)
			}
			return out.grant, out.err
		case <-alive.C:
			if _, err := u.entry.Renew(waitCtx); errors.Is(err, lease.ErrLost) {
				cancel(err)
			}
		}
	}
}

// sayWho adds to the error of a lock that is held who holds it, as this member
// knows.
func (u *unary) sayWho(ctx context.Context, err error) error {
	if !errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrUncertain) {
		return err
	}
	for _, name := range u.request.Resources {
		status, inspectErr := u.service.router.node.Inspect(ctx, name, raftstore.Stale)
		if inspectErr != nil {
			continue
		}
		for _, h := range append(status.Holders, u.service.book.status(name).Holders...) {
			holder := h.Holder
			if holder == "" {
				holder = "someone without a name"
			}
			return fmt.Errorf("%w: %q by %s with token %d", err, string(name), holder, h.Token)
		}
	}
	return err
}

// giveUp ends an attempt that nobody waits for: a call that has failed leaves
// nothing behind, unless the caller can ask again by nonce. An invalid call has
// asked for nothing, and its nonce may be that of another attempt, which lives.
func (u *unary) giveUp(ctx context.Context, err error) {
	retry := u.named && errors.Is(err, lease.ErrUncertain)
	invalid := !u.single && errors.Is(err, lease.ErrInvalid)
	if retry || invalid {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if u.single {
		_ = u.entry.Close(ctx) // else it expires
	} else {
		_ = u.entry.Release(ctx, u.request.Nonce)
	}
}

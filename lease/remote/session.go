package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// session is a engine.Session of a Backend.
type session struct {
	backend *Backend
	config  engine.SessionConfig

	attaching chan struct{} // held while it is being attached

	mu       sync.Mutex
	attached *link                 // where the service knows it
	sent     engine.Instant        // before the last keep-alive that was answered was sent
	held     map[engine.Nonce]held // what was granted and not released
	gone     error                 // why the session is over
}

// held is a grant.
type held struct {
	token   fencing.Token
	leaving bool // it is being given back
}

var _ engine.Session = (*session)(nil)

// Open starts a session.
func (b *Backend) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	if config.Clock == nil {
		config.Clock = engine.SystemClock()
	}
	s := &session{backend: b, config: config, attaching: make(chan struct{}, 1), held: map[engine.Nonce]held{}, sent: config.Clock.Now()}
	err := b.do(ctx, func(l *link) error {
		s.join(l)
		op := s.operation()
		op.Call = &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(config.TTL)}}
		if _, err := l.do(ctx, op, &pending{}, b.patience); err != nil {
			s.part(l)
			return err
		}
		s.mu.Lock()
		s.attached = l
		s.mu.Unlock()
		return nil
	})
	if errors.Is(err, wire.ErrUnauthenticated) && !errors.Is(err, engine.ErrUncertain) {
		return nil, fmt.Errorf("%w: open session: %w", engine.ErrInvalid, err) // nothing is held yet: waiting does not help
	}
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return s, nil
}

func (s *session) operation() *pb.Operation { return &pb.Operation{Session: s.config.ID[:]} }

// join lets the session hear of its losses on a link.
func (s *session) join(l *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[s.config.ID] = s
}

// part is the other end of join. A session that is over must not stay with a
// link, which lasts.
func (s *session) part(l *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions[s.config.ID] == s {
		delete(l.sessions, s.config.ID)
	}
}

// do runs an operation on a link on which the session is attached.
func (s *session) do(ctx context.Context, p *pending, waits bool, fill func(*pb.Operation)) (answer *pb.Answer, err error) {
	err = s.backend.do(ctx, func(l *link) error {
		if err := s.attach(ctx, l); err != nil {
			return err
		}
		op := s.operation()
		fill(op)
		limit := s.backend.patience
		if waits {
			limit = 0
		}
		answer, err = l.do(ctx, op, p, limit)
		return err
	})
	if errors.Is(err, engine.ErrLost) {
		s.end(err)
	}
	return answer, err
}

// attach makes the session known on a link where it is not. What it does not
// hold there any more is lost.
func (s *session) attach(ctx context.Context, l *link) error {
	select {
	case s.attaching <- struct{}{}:
		defer func() { <-s.attaching }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	if s.gone != nil || s.attached == l {
		defer s.mu.Unlock()
		return s.gone
	}
	before := maps.Clone(s.held)
	s.mu.Unlock()
	s.join(l)
	op := s.operation()
	op.Call = &pb.Operation_Attach{Attach: &pb.AttachCall{TtlNanos: int64(s.config.TTL)}}
	answer, err := l.do(ctx, op, &pending{}, s.backend.patience)
	if err != nil {
		s.part(l)
		return err
	}
	there := make(map[engine.Nonce]fencing.Token, len(answer.Holds))
	for _, h := range answer.Holds {
		there[engine.Nonce(h.Nonce)] = fencing.Token(h.Token)
	}
	for nonce, h := range before {
		if there[nonce] != h.token {
			s.lost(nonce, fmt.Errorf("%w: the service does not have it any more", engine.ErrExpired))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attached = l
	if s.gone != nil { // meanwhile
		s.part(l)
	}
	return nil
}

// leave marks grants that are being given back: nobody has to be told of their
// loss.
func (s *session) leave(nonces ...engine.Nonce) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, nonce := range nonces {
		if h, ok := s.held[nonce]; ok {
			h.leaving = true
			s.held[nonce] = h
		}
	}
}

// lost passes a loss on.
func (s *session) lost(nonce engine.Nonce, err error) {
	s.mu.Lock()
	leaving := s.held[nonce].leaving
	delete(s.held, nonce)
	s.mu.Unlock()
	if s.config.Lost != nil && !leaving {
		s.config.Lost(nonce, err)
	}
}

// end notes that the session is over, and with it everything in it.
func (s *session) end(err error) {
	s.mu.Lock()
	if s.gone == nil {
		s.gone = err
	}
	all := slices.Collect(maps.Keys(s.held))
	l := s.attached
	s.mu.Unlock()
	for _, nonce := range all {
		s.lost(nonce, err)
	}
	if l != nil {
		s.part(l)
	}
}

// Acquire asks for a grant.
func (s *session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	if err := request.Validate(); err != nil {
		return engine.Grant{}, err
	}
	p := &pending{key: attempt{s.config.ID, request.Nonce}}
	if request.Queued != nil {
		p.queued = sync.OnceFunc(request.Queued)
	}
	call := wire.FromRequest(&request)
	answer, err := s.do(ctx, p, request.Wait, func(op *pb.Operation) { op.Call = &pb.Operation_Acquire{Acquire: call} })
	if err != nil {
		return engine.Grant{}, err
	}
	mode, err := wire.ParseMode(answer.Mode)
	if err != nil {
		return engine.Grant{}, fmt.Errorf("%w: %w", engine.ErrUncertain, err)
	}
	grant := engine.Grant{Token: fencing.Token(answer.Token), Mode: mode, Slot: int(answer.Slot)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[request.Nonce] = held{token: grant.Token}
	grant.Sent = s.sent // it lasts as long as its session
	return grant, nil
}

// Renew prolongs the session. If it is not answered in time the link is given up,
// since the member may be stuck.
func (s *session) Renew(ctx context.Context) ([]engine.Nonce, error) {
	sent := s.config.Clock.Now()
	_, err := s.do(ctx, &pending{urgent: true}, false, func(op *pb.Operation) { op.Call = &pb.Operation_Renew{Renew: &pb.RenewCall{}} })
	if err != nil {
		return nil, fmt.Errorf("renew: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.Since(s.sent) > 0 {
		s.sent = sent
	}
	return nil, nil
}

// Release ends an attempt. A lost session counts as released.
func (s *session) Release(ctx context.Context, nonce engine.Nonce) error {
	s.leave(nonce)
	_, err := s.do(ctx, &pending{}, false, func(op *pb.Operation) {
		op.Call = &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: uint64(nonce)}}
	})
	if err != nil && !errors.Is(err, engine.ErrLost) {
		return fmt.Errorf("release: %w", err)
	}
	s.mu.Lock()
	delete(s.held, nonce)
	s.mu.Unlock()
	return nil
}

// Close ends the session.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.held))
	s.mu.Unlock()
	s.leave(all...)
	_, err := s.do(ctx, &pending{}, false, func(op *pb.Operation) { op.Call = &pb.Operation_Close{Close: &pb.CloseCall{}} })
	if err != nil && !errors.Is(err, engine.ErrLost) {
		return fmt.Errorf("close session: %w", err)
	}
	s.end(engine.ErrNotHeld)
	return nil
}

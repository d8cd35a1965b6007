package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// session is an engine.Session in correctness mode.
type session struct {
	backend *Backend
	config  engine.SessionConfig

	attaching  chan struct{} // a mutex: held while the session is being attached
	unanswered int           // how many attaches got no answer since the last that succeeded; guarded by attaching

	mu       sync.Mutex
	attached *connection                    // the connection on which the leader knows the session
	sent     engine.Instant                 // before the last answered keep-alive was sent
	grants   map[engine.Nonce]fencing.Token // what the leader has granted and nobody has begun to release
	over     error                          // why the session ended, nil while it lives
}

var _ engine.Session = (*session)(nil)

// Open opens a session at the leader. A session in efficiency mode exists only in this
// process.
func (b *Backend) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	if config.Mode == engine.Efficiency {
		return b.efficiency.Open(ctx, config)
	}
	config.Clock = cmp.Or(config.Clock, engine.SystemClock())
	s := &session{backend: b, config: config, attaching: make(chan struct{}, 1), grants: map[engine.Nonce]fencing.Token{},
		sent: config.Clock.Now()}
	op := s.backend.operation(ctx, s.config.ID)
	op.other = &pb.Operation{Call: &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: int64(config.TTL)}}}
	err := b.do(ctx, func(c *connection) error {
		s.register(c)
		if _, err := c.do(ctx, &op); err != nil {
			s.unregister(c)
			return err
		}
		s.mu.Lock()
		s.attached = c
		s.mu.Unlock()
		return nil
	})
	if errors.Is(err, wire.ErrUnauthenticated) && !errors.Is(err, engine.ErrUncertain) {
		// The session holds nothing yet, and a retry cannot help.
		return nil, fmt.Errorf("%w: open session: %w", engine.ErrInvalid, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return s, nil
}

// register delivers the notices on a connection to the session.
func (s *session) register(c *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[s.config.ID] = s
}

// unregister undoes register, because a connection outlives its sessions.
func (s *session) unregister(c *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions[s.config.ID] == s {
		delete(c.sessions, s.config.ID)
	}
}

// send sends an operation to the leader, on a connection on which the session is
// attached.
func (s *session) send(ctx context.Context, op *operation) (answer wire.Answer, err error) {
	var urgent engine.Instant
	if deadline, limited := ctx.Deadline(); limited && op.urgent {
		// It may spend most of its time on connecting. The next one then attaches on this connection at once.
		now := s.config.Clock.Now()
		left := deadline.Sub(now.Time())
		urgent = now.Add(left - min(left/2, s.config.TTL/6))
	}
	err = s.backend.do(ctx, func(c *connection) error {
		if err := s.attach(ctx, c, urgent); err != nil {
			return err
		}
		answer, err = c.do(ctx, op)
		return err
	})
	return answer, err
}

// do is send for an operation whose error is that of the session: a loss ends it.
func (s *session) do(ctx context.Context, op *operation) (answer wire.Answer, err error) {
	if answer, err = s.send(ctx, op); errors.Is(err, engine.ErrLost) {
		s.end(err)
	}
	return answer, err
}

const (
	// largeSession is the number of leases above which the answer to an attach may be so large that it delays the
	// heartbeats behind it. That excuses silence until the answer: a renewal leaves a leader that was stopped meanwhile.
	largeSession = 1000
	// maxDoublings bounds the time for the answer to an attach.
	maxDoublings = 5
)

// attach makes the session known on a connection. Grants that the leader does not
// know are lost. Each time that an answer takes too long, the next attach waits twice as
// long. If a call that begins before urgent, and may wait while others attach, is not answered before the deadline of
// ctx, the member may be stuck.
func (s *session) attach(ctx context.Context, c *connection, urgent engine.Instant) error {
	if attached, err := s.isAttached(c); attached || err != nil {
		return err
	}
	sent := s.config.Clock.Now()
	isUrgent := !urgent.IsZero() && sent.Until(urgent) > 0
	began := s.backend.settings.clock.Now()
	select {
	case s.attaching <- struct{}{}:
		defer func() { <-s.attaching }()
	case <-ctx.Done():
		if isUrgent { // others attach, and get no answer either
			c.leaveIfStuck(ctx, began)
		}
		return engine.Cause(ctx)
	}
	if attached, err := s.isAttached(c); attached || err != nil {
		return err
	}
	s.mu.Lock()
	before := maps.Clone(s.grants)
	s.mu.Unlock()
	s.register(c)
	op := s.backend.operation(ctx, s.config.ID)
	op.limit <<= min(s.unanswered, maxDoublings)
	sent = s.config.Clock.Now()
	op.urgent = isUrgent
	op.quiet = len(before) > largeSession
	op.other = &pb.Operation{Call: &pb.Operation_Attach{Attach: &pb.AttachCall{TtlNanos: int64(s.config.TTL)}}}
	answer, err := c.do(ctx, &op)
	if err != nil {
		if isUrgent && errors.Is(err, engine.ErrUncertain) {
			c.leaveIfStuck(ctx, began) // the attaches of others had no answer before
		}
		if errors.Is(err, engine.ErrUncertain) && ctx.Err() == nil { // neither the answer of a follower, nor a short call
			s.unanswered++
		}
		s.unregister(c)
		return err
	}
	s.unanswered = 0
	holds := answer.Full.GetHolds()
	known := make(map[engine.Nonce]fencing.Token, len(holds))
	for _, h := range holds {
		known[engine.Nonce(h.Nonce)] = fencing.Token(h.Token)
	}
	for nonce, token := range before {
		if known[nonce] != token {
			s.lose(nonce, fmt.Errorf("%w: the leader does not know the lease", engine.ErrExpired))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attached = c
	if sent.Since(s.sent) > 0 {
		s.sent = sent // the leader has extended the session
	}
	if s.over != nil { // it ended in the meantime
		s.unregister(c)
	}
	return nil
}

// isAttached reports whether the session is attached on a connection. The error says why
// the session has ended.
func (s *session) isAttached(c *connection) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached == c, s.over
}

// remove removes a grant.
func (s *session) remove(nonce engine.Nonce) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.grants, nonce)
}

// lose removes a grant and reports its loss.
func (s *session) lose(nonce engine.Nonce, err error) {
	s.remove(nonce)
	if s.config.Lost != nil {
		s.config.Lost(nonce, err)
	}
}

// disconnected tells the caller that the connection to which the session is attached has dropped.
func (s *session) disconnected(from *connection) {
	s.mu.Lock()
	attached := s.attached == from && s.over == nil
	s.mu.Unlock()
	if attached && s.config.Disconnected != nil {
		s.config.Disconnected()
	}
}

// end ends the session and every grant in it.
func (s *session) end(err error) {
	s.mu.Lock()
	if s.over == nil {
		s.over = err
	}
	all := slices.Collect(maps.Keys(s.grants))
	c := s.attached
	s.mu.Unlock()
	for _, nonce := range all {
		s.lose(nonce, err)
	}
	if c != nil {
		s.unregister(c)
	}
}

// Acquire requests a grant.
func (s *session) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	op := s.backend.acquireOperation(ctx, s.config.ID, request, 0)
	answer, err := s.do(ctx, &op)
	if err != nil {
		return engine.Grant{}, err
	}
	g, err := grantOf(&answer)
	if err != nil {
		return engine.Grant{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants[request.Nonce] = g.Token
	g.Sent = s.sent // it lasts as long as its session
	return g, nil
}

// Renew extends the session. If it is not answered in time, and the member has had enough of it for an answer, the
// connection is closed, because the member may be stuck.
func (s *session) Renew(ctx context.Context, _ ...engine.Held) ([]engine.Nonce, error) {
	sent := s.config.Clock.Now()
	op := s.backend.operation(ctx, s.config.ID)
	op.other, op.urgent = &pb.Operation{Call: &pb.Operation_Renew{Renew: &pb.RenewCall{}}}, true
	if _, err := s.do(ctx, &op); err != nil {
		return nil, fmt.Errorf("renew: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.Since(s.sent) > 0 {
		s.sent = sent
	}
	return slices.Collect(maps.Keys(s.grants)), nil // they last as long as the session
}

// Update extends the session by the TTL of a lease, and sets the metadata of the lease.
func (s *session) Update(ctx context.Context, held engine.Held) error {
	op := s.backend.operation(ctx, s.config.ID)
	op.other = &pb.Operation{Call: &pb.Operation_Update{Update: &pb.UpdateCall{Nonce: uint64(held.Nonce),
		TtlNanos: int64(held.TTL),
		Metadata: held.Metadata}}}
	if _, err := s.send(ctx, &op); err != nil { // the lease may be lost without its session
		return fmt.Errorf("renew: %w", err)
	}
	return nil
}

// Release ends an attempt. A lost session counts as released.
func (s *session) Release(ctx context.Context, held engine.Held) error {
	s.remove(held.Nonce) // from here on, its loss is not reported
	op := s.backend.operation(ctx, s.config.ID)
	op.release = held.Nonce
	if _, err := s.do(ctx, &op); err != nil && !errors.Is(err, engine.ErrLost) {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// Close closes the session at the leader.
func (s *session) Close(ctx context.Context, _ ...engine.Held) error {
	s.mu.Lock()
	clear(s.grants)
	s.mu.Unlock()
	op := s.backend.operation(ctx, s.config.ID)
	op.limit = 0 // many leases end in many entries, and heartbeats show that the member works on it
	op.other = &pb.Operation{Call: &pb.Operation_Close{Close: &pb.CloseCall{}}}
	_, err := s.do(ctx, &op)
	if err != nil && !errors.Is(err, engine.ErrLost) {
		return fmt.Errorf("close session: %w", err)
	}
	s.end(engine.ErrNotHeld)
	return nil
}

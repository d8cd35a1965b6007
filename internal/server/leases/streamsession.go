package leases

import (
	"errors"
	"fmt"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// session returns a session that was opened or attached on this stream.
func (st *stream) session(id engine.SessionID) (*raftstore.Session, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if s := st.sessions[id]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%w: session %s is not open on this stream; open or attach it first", engine.ErrInvalid, id)
}

// sessionToEnd is like session, for an operation that ends something. If the session
// does not exist, the error matches engine.ErrExpired: another copy of the operation
// may have closed it.
func (st *stream) sessionToEnd(id engine.SessionID) (*raftstore.Session, error) {
	s, err := st.session(id)
	if err == nil {
		return s, nil
	}
	_, machineErr := st.service.router.Node.Requests(st.ctx, id, raftstore.Linearizable)
	switch {
	case errors.Is(machineErr, engine.ErrNotHeld):
		return nil, fmt.Errorf("%w: there is no session %s", engine.ErrExpired, id)
	case machineErr != nil:
		return nil, machineErr
	}
	return nil, err
}

func (st *stream) openSession(id engine.SessionID, call *pb.OpenCall) error {
	s, err := st.service.open(st.ctx, id, time.Duration(call.TtlNanos), st.lostOf(id))
	if err != nil {
		return err
	}
	return st.add(s)
}

// attachSession finds a session, and answers with its leases.
func (st *stream) attachSession(id engine.SessionID, call *pb.AttachCall, a *pb.Answer) error {
	s, err := st.service.attachFor(st.ctx, id, time.Duration(call.TtlNanos), st.lostOf(id))
	if err != nil {
		return err
	}
	if err := st.add(s); err != nil {
		return err
	}
	holds, err := s.Holds()
	for _, h := range holds {
		a.Holds = append(a.Holds, &pb.Hold{Nonce: uint64(h.Nonce), Token: uint64(h.Token)})
	}
	return err
}

// lostOf returns the function that notifies the client of the lost leases of a session.
func (st *stream) lostOf(id engine.SessionID) func(engine.Nonce, error) {
	return func(nonce engine.Nonce, err error) { st.notify(id, nonce, err) }
}

// add makes a session available to the operations of the stream. A stream uses only the first
// incarnation of a session that it saw. A late copy of the request that opened the session may
// open another incarnation after the end of the first, and must not hide that end from the
// client.
func (st *stream) add(s *raftstore.Session) error {
	st.mu.Lock()
	known := st.sessions[s.ID()]
	if known == nil && st.ctx.Err() == nil { // otherwise detach may have run before
		st.sessions[s.ID()] = s
	} else {
		defer s.Detach()
	}
	st.mu.Unlock()
	if known != nil && known.Incarnation() != s.Incarnation() {
		return fmt.Errorf("%w: the session %s that was opened on this stream has ended; open one with another id",
			engine.ErrExpired, s.ID())
	}
	return nil
}

// detach stops the notices of all sessions when the stream ends.
func (st *stream) detach() {
	st.mu.Lock()
	sessions := st.sessions
	st.sessions = map[engine.SessionID]*raftstore.Session{}
	st.mu.Unlock()
	for _, s := range sessions {
		s.Detach()
	}
}

func (st *stream) renewSession(id engine.SessionID) error {
	s, err := st.session(id)
	if err != nil {
		return err
	}
	err = s.Extend(st.ctx)
	st.service.metrics.Renewed(engine.Correctness, err)
	return err
}

func (st *stream) update(id engine.SessionID, call *pb.UpdateCall) error {
	s, err := st.session(id)
	if err == nil {
		err = st.service.update(st.ctx, s, engine.Held{Nonce: engine.Nonce(call.Nonce), TTL: time.Duration(call.TtlNanos),
			Metadata: call.Metadata})
	}
	st.service.metrics.Renewed(engine.Correctness, err)
	return err
}

func (st *stream) releaseInRaft(id engine.SessionID, nonce engine.Nonce) error {
	s, err := st.sessionToEnd(id)
	if err != nil {
		return err
	}
	return s.Release(st.ctx, engine.Held{Nonce: nonce})
}

// closeSession closes a session and removes it from the stream. A session that
// ended in another way stays: the client may not know of it.
func (st *stream) closeSession(id engine.SessionID) error {
	s, err := st.sessionToEnd(id)
	if err != nil {
		return err
	}
	if err := s.Close(st.ctx); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.sessions, id)
	return nil
}

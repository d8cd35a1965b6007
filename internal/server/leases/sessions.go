package leases

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// The first bytes of the ids of sessions that the service opens itself.
var (
	// singleMark marks a session that was opened for one lease. It is closed when
	// the lease is released.
	singleMark = [4]byte{'o', 'n', 'e', 0}
	// redisMark marks the session id of a lease in efficiency mode that was acquired
	// without a session. No session has this id.
	redisMark = [4]byte{'e', 'f', 'f', 0}
)

func newMarkedID(mark [4]byte) engine.SessionID {
	id := engine.NewSessionID()
	copy(id[:], mark[:])
	return id
}

func hasMark(id engine.SessionID, mark [4]byte) bool { return [4]byte(id[:4]) == mark }

// open opens a session, or finds one that is open with the same TTL. lost, if not nil,
// receives its losses until the session is detached.
func (s *Service) open(ctx context.Context, id engine.SessionID, ttl time.Duration,
	lost func(engine.Nonce, error)) (*raftstore.Session, error) {
	if err := s.limits.CheckTTL(ttl); err != nil {
		return nil, err
	}
	config, err := s.sessionConfig(ctx, id, lost)
	if err != nil {
		return nil, err
	}
	config.TTL = ttl
	opened, err := s.router.Raft.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	s.router.Node.NoteClient(id, audit.ClientOf(ctx))
	return opened.(*raftstore.Session), nil
}

// attach finds a session that is open, and renews it. It never opens one: if the session has
// ended, the error matches engine.ErrLost. Every call that names a session finds it here, so
// only its owner can use it: for another user the error matches engine.ErrForbidden.
func (s *Service) attach(ctx context.Context, id engine.SessionID, lost func(engine.Nonce, error)) (*raftstore.Session,
	error) {
	return s.attachFor(ctx, id, 0, lost)
}

// attachFor is attach for a client that renews the session for a TTL, which may be shorter than that
// of the session: see raftstore.Backend.Attach.
func (s *Service) attachFor(ctx context.Context, id engine.SessionID, ttl time.Duration,
	lost func(engine.Nonce, error)) (*raftstore.Session, error) {
	config, err := s.sessionConfig(ctx, id, lost)
	if err != nil {
		return nil, err
	}
	config.TTL = ttl
	attached, err := s.router.Raft.Attach(ctx, config)
	if err == nil {
		s.router.Node.NoteClient(id, audit.ClientOf(ctx))
	}
	return attached, err
}

// sessionConfig returns the configuration of a session of the caller. The Raft machine
// refuses a session that belongs to another user.
func (s *Service) sessionConfig(ctx context.Context, id engine.SessionID,
	lost func(engine.Nonce, error)) (engine.SessionConfig, error) {
	if hasMark(id, redisMark) {
		return engine.SessionConfig{}, fmt.Errorf("%w: sessionId %s belongs to a lease in efficiency mode, which has no "+
			"session; "+
			"name the lease by resource and token", engine.ErrInvalid, id)
	}
	return engine.SessionConfig{ID: id, User: auth.UserName(ctx), Clock: s.router.Clock, Lost: lost}, nil
}

// chooseNonce chooses a nonce that the session does not use, for a caller that gave none.
func (s *Service) chooseNonce(session *raftstore.Session) (engine.Nonce, error) {
	generation := s.router.Node.Status().Generation
	for {
		nonce := s.nonces.next(session.ID(), generation)
		if used, err := session.Attempt(nonce); err != nil || used.Code == machine.Ended {
			return nonce, err
		}
	}
}

// maxChosen bounds the sessions whose last chosen nonce is remembered.
const maxChosen = 1 << 16

// nonces generates nonces, each once per session: a second attempt with the same nonce
// would get the grant of the first. Each leader has its own range, because it does not
// know which nonces earlier leaders chose. The nonces of one session are consecutive, unless it
// was forgotten, because the machine stores them as ranges. The zero value is ready for use.
type nonces struct {
	mu    sync.Mutex
	last  map[engine.SessionID]engine.Nonce
	first engine.Nonce // above every nonce of the sessions that were forgotten
	top   engine.Nonce // the largest so far
}

// next returns the next nonce of a session in a generation of the machine.
func (n *nonces) next(id engine.SessionID, generation uint64) engine.Nonce {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last == nil || len(n.last) >= maxChosen {
		n.last, n.first = map[engine.SessionID]engine.Nonce{}, n.top
	}
	nonce := max(engine.Nonce(generation)<<32, n.first, n.last[id]) + 1
	n.last[id], n.top = nonce, max(n.top, nonce)
	return nonce
}

package leases

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/lease/engine"
)

// Bounds on the length of the attempt of an acquire without a session.
const (
	minAttempt = 16
	maxAttempt = 128
)

// singleID returns the session id for an acquire that names no session. Copies of the call with
// the same attempt, by the same user, get the same id.
func (a *acquisition) singleID(ctx context.Context, mark [4]byte) engine.SessionID {
	if a.call.Attempt == "" {
		return newMarkedID(mark)
	}
	hash := sha256.Sum256([]byte(auth.UserName(ctx) + "\x00" + a.call.Attempt))
	id := engine.SessionID(hash[:16])
	copy(id[:], mark[:])
	return id
}

// repeatable reports whether copies of the call have one outcome.
func (a *acquisition) repeatable() bool { return a.call.SessionId != "" || a.call.Attempt != "" }

// repeated returns the answer of an earlier copy of a call in efficiency mode, nil if there is
// none. It renews the lease, because the caller counts its TTL from this copy. again says that the lock was held by a
// copy that was not granted, on a member that has ended, and was released. An error leaves open whether a copy was
// granted.
func (a *acquisition) repeated(ctx context.Context, id engine.SessionID) (answer *pb.AcquireResponse, again bool,
	err error) {
	if a.call.Attempt == "" {
		return nil, false, nil
	}
	backend, err := a.router.Redis.Backend()
	if err != nil {
		return nil, false, err
	}
	a.counted = a.router.Clock.Now()
	tries, err := backend.Attempts(ctx, a.request.Resources[0], id, a.request.Nonce)
	if err != nil {
		return nil, false, err
	}
	for _, held := range tries {
		if held.Token == fencing.None {
			continue
		}
		if !sameLocks(held.Resources, a.request.Resources) {
			return nil, false, nil
		}
		switch err := a.redis.renew(ctx, []engine.Held{held})[0]; {
		case errors.Is(err, engine.ErrLost):
			return nil, false, nil
		case err != nil:
			return nil, false, err
		}
		return a.response(engine.Grant{Token: held.Token, Mode: engine.Efficiency}, id, held.TTL), false, nil
	}
	again, err = backend.ReleaseAbandoned(ctx, tries)
	return nil, again, err
}

// callerName names a holder that gives no name: the user and the address of the caller.
func callerName(ctx context.Context) string {
	host := audit.AddressOf(ctx)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if user := auth.UserName(ctx); user != "" {
		host = user + "@" + host
	}
	if engine.ValidateHolder(host) != nil {
		return ""
	}
	return host
}

package leases

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/observe"
	"github.com/leased-project/leased/lease/engine"
)

// redisLeases serves leases in efficiency mode for any caller. It keeps nothing: a
// caller names its lease with each call, on any member. The backend checks the mode
// of the locks at each attempt, by the topology whose version the attempt carries
// to the Redis nodes.
type redisLeases struct {
	service *Service
}

// acquire asks for a lease once.
func (l redisLeases) acquire(ctx context.Context, session engine.SessionID, ttl time.Duration,
	request engine.Request) (engine.Held, engine.Grant, error) {
	backend, err := l.service.router.Redis.Backend()
	if err != nil {
		return engine.Held{}, engine.Grant{}, err
	}
	request.User = auth.UserName(ctx)
	if queued := request.Queued; queued != nil {
		request.Queued = func() {
			l.service.metrics.Waits()
			queued()
		}
	}
	account := l.service.limits.Of(ctx)
	if err := account.CheckLeases(); err != nil {
		return engine.Held{}, engine.Grant{}, err
	}
	held, err := backend.Acquire(ctx, session, ttl, request)
	if err == nil {
		if err = account.Granted(held.Name, ttl); err != nil {
			l.withdraw(ctx, held)
			return engine.Held{}, engine.Grant{}, err
		}
		l.record(observe.Granted, held)
		l.service.metrics.Grants()
	}
	return held, engine.Grant{Token: held.Token, Mode: engine.Efficiency}, err
}

// confirm renews a lease that was granted after a wait, because its caller counts the TTL from the answer. If that
// fails, it withdraws the lease.
func (l redisLeases) confirm(ctx context.Context, held engine.Held) error {
	err := context.Cause(ctx) // the renewed lease of a caller that is gone could not be withdrawn
	if err == nil {
		err = l.renew(ctx, []engine.Held{held})[0]
	}
	if err != nil {
		l.withdraw(ctx, held)
	}
	return err
}

// withdraw ends a lease that its caller is not told of. A copy of the call may have been granted the same attempt on
// another member.
func (l redisLeases) withdraw(ctx context.Context, held engine.Held) {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	l.service.limits.Of(ctx).Released(held.Name)
	if backend, err := l.service.router.Redis.Backend(); err == nil {
		_ = backend.Withdraw(cleanup, held) // otherwise it expires
	}
}

// renew extends leases and returns an error for each: nil, one that matches
// engine.ErrLost, or one that leaves open whether the lease was renewed. A lease
// whose lock leaves efficiency mode is lost.
func (l redisLeases) renew(ctx context.Context, leases []engine.Held) []error {
	account := l.service.limits.Of(ctx)
	for {
		version := l.service.router.Node.Topology().Version
		backend, err := l.service.router.Redis.Backend()
		if err != nil {
			return slices.Repeat([]error{err}, len(leases))
		}
		errs := backend.Renew(ctx, leases)
		outdated := false
		for i, err := range errs {
			if err == nil {
				account.Renewed(leases[i].Name, leases[i].TTL)
			}
			outdated = outdated || errors.Is(err, engine.ErrVersion)
			errs[i] = onlyLoss(err)
		}
		if !outdated || l.service.router.WaitTopology(ctx, version) != nil {
			return errs
		}
	}
}

// release ends a lease that was granted.
func (l redisLeases) release(ctx context.Context, held engine.Held) error {
	err := l.end(ctx, held)
	if err == nil {
		l.record(observe.Released, held)
		l.service.chain.Audit.Released(ctx, &held)
	}
	return err
}

// end ends a lease and does not record that in the history.
func (l redisLeases) end(ctx context.Context, held engine.Held) error {
	backend, err := l.service.router.Redis.Backend()
	if err != nil {
		return err
	}
	err = backend.Release(ctx, held)
	if err == nil {
		l.service.limits.Of(ctx).Released(held.Name)
		l.service.metrics.Ended(metrics.Released)
	}
	return err
}

// record adds an event to the history of the locks of a lease that are in efficiency mode.
func (l redisLeases) record(kind observe.Kind, held engine.Held) {
	for _, name := range held.Resources {
		if l.service.router.ModeOf(name) != engine.Efficiency {
			continue
		}
		l.service.recorder.Add(name, kind, &engine.Party{Holder: held.Holder, User: held.User, Session: held.Session,
			Nonce: held.Nonce,
			Token: held.Token}, time.Time{})
	}
}

// find returns the caller's lease that holds a lock with a token. The lease of another
// user counts as not held, so that nobody can find out tokens by trying.
func (l redisLeases) find(ctx context.Context, name fencing.Resource, token fencing.Token) (engine.Held, error) {
	backend, err := l.service.router.Redis.Backend()
	if err != nil {
		return engine.Held{}, err
	}
	held, err := backend.Find(ctx, name, token)
	if errors.Is(err, engine.ErrNotHeld) || held.Name != "" && !auth.Owns(ctx, held.User) {
		return engine.Held{}, notHeld(ctx, string(name), uint64(token))
	}
	return held, err
}

// releaseAttempt releases what the Redis nodes have of an attempt whose client does not know its
// outcome: the connection to another member broke before the answer.
func (l redisLeases) releaseAttempt(ctx context.Context, key attempt, resources []string) error {
	backend, err := l.service.router.Redis.Backend()
	if err != nil || len(resources) == 0 {
		return err
	}
	tries, err := backend.Attempts(ctx, fencing.Resource(resources[0]), key.session, key.nonce)
	for _, held := range tries {
		switch {
		case !auth.Owns(ctx, held.User):
		case ctx.Err() != nil: // the client has asked again, and may have been granted this attempt
			return context.Cause(ctx)
		case held.Token == fencing.None: // the nodes that answered have not granted it
			err = errors.Join(err, l.end(ctx, held))
		default:
			err = errors.Join(err, l.release(ctx, held))
		}
	}
	return err
}

// renewed records the outcome of the renewal of a lease by its caller.
func (l redisLeases) renewed(err error) {
	l.service.metrics.Renewed(engine.Efficiency, err)
	if errors.Is(err, engine.ErrLost) {
		l.service.metrics.Ended(metrics.Lost)
	}
}

// onlyLoss reduces an error that reports a lost lease to the loss, because its cause
// may match errors of an acquire, such as engine.ErrModeMismatch.
func onlyLoss(err error) error {
	for _, kind := range []error{engine.ErrNotHeld, engine.ErrTaken, engine.ErrLost} {
		if errors.Is(err, kind) {
			return engine.Special(err.Error(), kind)
		}
	}
	return err
}

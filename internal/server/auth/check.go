package auth

import (
	"context"
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Check returns an error that matches engine.ErrForbidden if the user of ctx may not
// call a gRPC method with this request. request is nil before the request was read:
// Check then checks what does not depend on it, and must be called again.
func Check(ctx context.Context, method string, request any) error {
	a := accountOf(ctx)
	if a == nil {
		return nil
	}
	n, known := methods[method]
	switch {
	case !known:
		return fmt.Errorf("%w: %s has no entry in the table of rights", engine.ErrForbidden, method)
	case n.anyRight && !slices.ContainsFunc(a.Rules, func(r Rule) bool { return r.Right != Metrics }):
		return fmt.Errorf("%w: user %s has no right on locks or the cluster, and %s needs one; grant one with `leased user allow %[2]s RULE`, such as 'acquire:jobs/*'",
			engine.ErrForbidden, a.Name, method)
	case n.member && a.Member:
	case n.member && !n.cluster:
		return fmt.Errorf("%w: %s requires a member account, and user %s is not one; use the secret of an account made with `leased user add --member`",
			engine.ErrForbidden, method, a.Name)
	case n.cluster:
		if _, ok := a.Rules.Find(Cluster, ""); !ok {
			return fmt.Errorf("%w: user %s lacks the right cluster, which %s requires; grant it with `leased user allow %[2]s cluster`",
				engine.ErrForbidden, a.Name, method)
		}
	case n.request != nil && request != nil:
		return n.request(a, request)
	}
	return nil
}

// AllowMetrics returns an error that matches engine.ErrForbidden if the user of ctx lacks
// the right Metrics.
func AllowMetrics(ctx context.Context) error {
	a := accountOf(ctx)
	if a == nil {
		return nil
	}
	if _, ok := a.Rules.Find(Metrics, ""); !ok {
		return fmt.Errorf("%w: user %s lacks the right metrics, which /metrics requires; grant it with `leased user allow %[2]s metrics`",
			engine.ErrForbidden, a.Name)
	}
	return nil
}

// Allow returns an error that matches engine.ErrForbidden if the user of ctx lacks a
// right on a lock.
func Allow(ctx context.Context, right Right, lock string) error {
	if a := accountOf(ctx); a != nil {
		return a.allowAll(right, lock)
	}
	return nil
}

// Can reports whether the user of ctx has a right on a lock.
func Can(ctx context.Context, right Right, lock string) bool {
	a := accountOf(ctx)
	if a == nil {
		return true
	}
	_, ok := a.Rules.Find(right, lock)
	return ok
}

// CanReadAll reports whether the user of ctx may read all locks.
func CanReadAll(ctx context.Context) bool {
	_, ok := RulesOf(ctx).FindPrefix(Read, "")
	return ok
}

// RulesOf returns the rules of the user of ctx. Without users, everyone has all rights.
func RulesOf(ctx context.Context) Rules {
	if a := accountOf(ctx); a != nil {
		return slices.Clone(a.Rules)
	}
	return AdminRules()
}

// Owns reports whether the user of ctx is the owner of what belongs to user. Without
// users, everyone owns everything.
func Owns(ctx context.Context, user string) bool {
	a := accountOf(ctx)
	return a == nil || a.Name == user
}

// Visible returns the status of a lock as the user of ctx may see it. Token, nonce and
// session id of a party identify its lease: only its owner sees them, and users who may
// break the lock, which needs the token. Everything else is for all who may read it.
func Visible(ctx context.Context, status engine.Status) engine.Status {
	if Can(ctx, Break, string(status.Resource)) {
		return status
	}
	hide := func(parties []engine.Party) []engine.Party {
		parties = slices.Clone(parties)
		for i := range parties {
			if p := &parties[i]; !Owns(ctx, p.User) {
				p.Token, p.Nonce, p.Session = fencing.None, 0, engine.SessionID{}
			}
		}
		return parties
	}
	status.Holders, status.Waiters = hide(status.Holders), hide(status.Waiters)
	return status
}

// allowAll checks a right on locks. A request without a name needs the right on any
// lock; the service rejects it with a better error.
func (a *account) allowAll(right Right, locks ...string) error {
	locks = slices.DeleteFunc(locks, func(name string) bool { return name == "" })
	if len(locks) == 0 {
		return a.allowSome(right, "")
	}
	for _, name := range locks {
		if _, ok := a.Rules.Find(right, name); !ok {
			return fmt.Errorf("%w: user %s lacks the right %s on lock %q; grant it with `leased user allow %[2]s '%[3]s:%[4]s'`",
				engine.ErrForbidden, a.Name, right, name)
		}
	}
	return nil
}

// allowPrefix checks a right on all locks with a prefix.
func (a *account) allowPrefix(right Right, prefix string) error {
	if _, ok := a.Rules.FindPrefix(right, prefix); !ok {
		return a.lacksOnPrefix(right, prefix)
	}
	return nil
}

// allowSome checks a right on some of the locks with a prefix.
func (a *account) allowSome(right Right, prefix string) error {
	if _, ok := a.Rules.findOverlap(right, prefix); !ok {
		return a.lacksOnPrefix(right, prefix)
	}
	return nil
}

func (a *account) lacksOnPrefix(right Right, prefix string) error {
	return fmt.Errorf("%w: user %s lacks the right %s on the locks with the prefix %q; grant it with `leased user allow %[2]s '%[3]s:%[4]s*'`",
		engine.ErrForbidden, a.Name, right, prefix)
}

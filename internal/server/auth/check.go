package auth

import (
	"context"
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// The Allow functions return an error that matches engine.ErrForbidden, and says which
// right to grant, if the user of ctx lacks a right. Without users everyone has all rights.

// AllowAny checks that the user has a right other than Metrics, whichever it is.
func AllowAny(ctx context.Context, method string) error {
	if slices.ContainsFunc(rulesOf(ctx), func(r Rule) bool { return r.Right != Metrics }) {
		return nil
	}
	return fmt.Errorf("%w: user %s has no right on locks or the cluster, and %s needs one; grant one with `leased "+
		"user allow %[2]s RULE`, such as 'acquire:jobs/*'",
		engine.ErrForbidden, UserName(ctx), method)
}

// AllowMember checks that the user is the account of a member.
func AllowMember(ctx context.Context, method string, _ any) error {
	a := accountOf(ctx)
	if a == nil || a.Member {
		return nil
	}
	return fmt.Errorf("%w: %s requires a member account: only members of the service call it, and user %s is none",
		engine.ErrForbidden, method, a.Name)
}

// AllowGlobal checks the right Cluster or Metrics.
func AllowGlobal(ctx context.Context, right Right, method string) error {
	if Can(ctx, right, "") {
		return nil
	}
	return fmt.Errorf("%w: user %s lacks the right %s, which %s requires; grant it with `leased user allow %[2]s %[3]s`",
		engine.ErrForbidden, UserName(ctx), right, method)
}

// Allow checks a right on locks. A request without a name needs the right on any lock; the
// service rejects it with a better error.
func Allow(ctx context.Context, right Right, locks ...string) error {
	named := false
	for _, name := range locks {
		if name == "" {
			continue
		}
		named = true
		if !Can(ctx, right, name) {
			return fmt.Errorf("%w: user %s lacks the right %s on lock %q; grant it with `leased user allow %[2]s '%[3]s:%[4]s'`",
				engine.ErrForbidden, UserName(ctx), right, name)
		}
	}
	if !named {
		return AllowSome(ctx, right, "")
	}
	return nil
}

// AllowPrefix checks a right on all locks with a prefix.
func AllowPrefix(ctx context.Context, right Right, prefix string) error {
	return allowPrefix(ctx, right, prefix, Rules.FindPrefix)
}

// AllowSome checks a right on some of the locks with a prefix.
func AllowSome(ctx context.Context, right Right, prefix string) error {
	return allowPrefix(ctx, right, prefix, Rules.findOverlap)
}

func allowPrefix(ctx context.Context, right Right, prefix string, find func(Rules, Right, string) (Rule, bool)) error {
	if _, ok := find(rulesOf(ctx), right, prefix); ok {
		return nil
	}
	return fmt.Errorf("%w: user %s lacks the right %s on the locks with the prefix %q; grant it with `leased user "+
		"allow %[2]s '%[3]s:%[4]s*'`",
		engine.ErrForbidden, UserName(ctx), right, prefix)
}

// Can reports whether the user of ctx has a right on a lock.
func Can(ctx context.Context, right Right, lock string) bool {
	_, ok := rulesOf(ctx).Find(right, lock)
	return ok
}

// CanReadAll reports whether the user of ctx may read all locks.
func CanReadAll(ctx context.Context) bool {
	_, ok := rulesOf(ctx).FindPrefix(Read, "")
	return ok
}

// RulesOf returns the rules of the user of ctx. Without users, everyone has all rights.
func RulesOf(ctx context.Context) Rules { return slices.Clone(rulesOf(ctx)) }

// everything are the rules of callers without users.
var everything = AdminRules()

func rulesOf(ctx context.Context) Rules {
	if a := accountOf(ctx); a != nil {
		return a.Rules
	}
	return everything
}

// Owns reports whether the user of ctx is the owner of what belongs to user. Without
// users, everyone owns everything.
func Owns(ctx context.Context, user string) bool {
	a := accountOf(ctx)
	return a == nil || a.Name == user
}

// Visible returns the status of a lock as the user of ctx may see it. Token, nonce and
// session id of a party identify its lease: only its owner sees them, and users who may
// break the lock, which needs the token. Everyone who may read the lock sees the rest.
func Visible(ctx context.Context, status engine.Status) engine.Status {
	if Can(ctx, Break, string(status.Resource)) {
		return status
	}
	hide := func(parties []engine.Party) []engine.Party {
		parties = slices.Clone(parties)
		for i := range parties {
			if p := &parties[i]; !Owns(ctx, p.User) {
				p.Token, p.Nonce, p.Session, p.Client = fencing.None, 0, engine.SessionID{}, ""
			}
		}
		return parties
	}
	status.Holders, status.Waiters = hide(status.Holders), hide(status.Waiters)
	return status
}

package raftstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

var (
	// ErrVersion: the topology has changed since it was read, or the named change is not
	// in progress. Read the topology again.
	ErrVersion = errors.New("topology has another version")
	// ErrMigrating: a migration in progress conflicts with the call. Wait for it, or abort
	// it first.
	ErrMigrating = errors.New("a migration between modes is in progress")
	// ErrNotReady: the log has not been reconciled with the Redis nodes yet. It matches
	// engine.ErrUnavailable.
	ErrNotReady = machine.ErrNotReady

	errMissing = errors.New("there is no such policy or migration")
)

// Policies returns the policies of all locks, and the version of the topology.
func (n *Node) Policies(ctx context.Context, c Consistency) (policies engine.Policies, version uint64, err error) {
	err = n.read(ctx, c, func(m *machine.Machine) { policies, version = m.Policies() })
	if err != nil {
		return engine.Policies{}, 0, fmt.Errorf("read policies: %w", err)
	}
	return policies, version, nil
}

// SetPolicy adds a policy, or replaces the one for its prefix, and returns the new version.
// If version is not 0 and the topology has another version, it returns ErrVersion.
//
// A policy that changes the mode of its locks starts a migration: they are not granted until
// it is complete. With now the migration does not wait for leases: those of correctness mode are
// broken, in several log entries if they are many. During a migration
// SetPolicy may be called again for the same mode; for the other mode it returns
// ErrMigrating.
func (n *Node) SetPolicy(ctx context.Context, p engine.Policy, version uint64, now bool) (uint64, error) {
	result, err := n.change(ctx, fmt.Sprintf("set policy for %q", p.Prefix), &machine.SetPolicy{Policy: p,
		Version: version, Now: now})
	return result.Version, err
}

// DeletePolicy removes the policy for a prefix, or returns engine.ErrInvalid if there is
// none. The locks may get another mode, so version and now have the meaning of SetPolicy.
func (n *Node) DeletePolicy(ctx context.Context, prefix string, version uint64, now bool) (uint64, error) {
	result, err := n.change(ctx, fmt.Sprintf("delete policy for %q", prefix), &machine.DeletePolicy{Prefix: prefix,
		Version: version, Now: now})
	if errors.Is(err, errMissing) {
		err = fmt.Errorf("%w: no policy for %q; see 'leased policy show'", engine.ErrInvalid, prefix)
	}
	return result.Version, err
}

// AbortMigration ends the migration of a prefix; its locks keep their mode. It returns
// engine.ErrInvalid if there is no migration.
func (n *Node) AbortMigration(ctx context.Context, prefix string) (uint64, error) {
	result, err := n.change(ctx, fmt.Sprintf("abort the migration of the policy for %q", prefix),
		&machine.AbortMigration{Prefix: prefix})
	if errors.Is(err, errMissing) {
		err = fmt.Errorf("%w: no migration of %q is in progress; see 'leased policy show'", engine.ErrInvalid, prefix)
	}
	return result.Version, err
}

// Change commits a step of a change that the leader carries out on the Redis nodes: it finishes a
// migration, a change of the fleet, a reconciliation or a recovery, names a life, closes sets, or raises
// the ceiling. See package machine for the commands. Steps may be repeated. Change returns
// engine.ErrHeld while locks that migrate to efficiency mode are held, ErrVersion if the log has
// changed since the caller read it, and ErrNotReady if the log must be reconciled first.
func (n *Node) Change(ctx context.Context, c machine.Command) error {
	_, err := n.change(ctx, "change the topology", c)
	return err
}

// change commits a command that changes the topology. what names the change in an error.
func (n *Node) change(ctx context.Context, what string, c machine.Command) (machine.Result, error) {
	before := n.Topology()
	result, _, err := n.propose(ctx, c)
	if err == nil {
		err = changeError(result)
	}
	if err != nil {
		return machine.Result{}, fmt.Errorf("%s: %w", what, err)
	}
	if result.Version != before.Version {
		n.logChange(c, result.Version)
	}
	return result, nil
}

// changeError returns why the machine refused a change of the topology.
func changeError(result machine.Result) error {
	switch result.Code {
	case machine.Done:
		return nil
	case machine.Outdated:
		return fmt.Errorf("%w: the current version is %d", ErrVersion, result.Version)
	case machine.Busy:
		return fmt.Errorf("%w: %q must be released first", engine.ErrHeld, string(result.Resource))
	case machine.NotHeld:
		return errMissing
	case machine.Migrating:
		return fmt.Errorf("%w: from %s to %s; wait for it, or abort it first", ErrMigrating, result.Mode, result.Next)
	case machine.NotReady:
		return fmt.Errorf("%w; see 'leased redis status'", ErrNotReady)
	case machine.Exhausted:
		return machine.ErrExhausted
	case machine.TooManyOpen:
		return errTooManyOpen
	}
	return fmt.Errorf("%w: the machine answered %s", engine.ErrUncertain, result.Code)
}

package machine

import (
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// SetPolicy adds a policy or replaces the one for its prefix. If Version is not
// 0 it must be the present version. A policy that changes the mode of its locks
// begins a move. Now breaks the holders of locks that move to the efficiency
// mode, and lets the leader skip the wait of the other direction.
//
// Given again during the move it may change the policy's timings or set Now, but
// not the direction: that needs AbortMove.
type SetPolicy struct {
	Policy  engine.Policy
	Version uint64
	Now     bool
}

// DeletePolicy removes the policy for a prefix. Version and Now are as in
// SetPolicy.
type DeletePolicy struct {
	Prefix  string
	Version uint64
	Now     bool
}

// AbortMove ends the move of a prefix. Its locks keep the mode that they had.
type AbortMove struct {
	Prefix string
}

// FinishMove completes the move of a prefix that began with Version: its locks
// have the new mode. Applied twice it is a no-op.
type FinishMove struct {
	Prefix  string
	Version uint64
}

// SetFleet sets the Redis nodes of the efficiency mode. If there was no fleet,
// or no lock was ever granted on it, that takes effect at once; else it begins a
// change, during which no efficiency lock is granted, until FinishFleet. The
// present fleet ends a change that was begun. If Version is not 0 it must be the
// present version. Now lets the leader skip the wait for leases of the old fleet,
// Force the preparation of its nodes.
type SetFleet struct {
	Fleet   engine.Fleet
	Version uint64
	Now     bool
	Force   bool
}

// FinishFleet completes the change of fleet that began with Version. Every later
// token of the efficiency mode is above the present ceiling, and none is granted
// before FinishReconcile. Applied twice it is a no-op.
type FinishFleet struct {
	Version uint64
}

// AssignRange assigns a fresh range of tokens to a Redis node that has no state.
// No other node, and no later AssignRange, gets any of these tokens. Join is the
// nonce on the node that the range is for.
type AssignRange struct {
	Member string
	Join   string
}

// RaiseCeiling raises the ceiling of the Redis nodes. It is never lowered.
type RaiseCeiling struct {
	To fencing.Token
}

// Reconcile moves the log past the largest version and ceiling that the Redis
// nodes, or an operator, report. It is for a log that was rolled back, or that
// meets a fleet for the first time.
type Reconcile struct {
	Version uint64
	Ceiling fencing.Token
}

// FinishReconcile lets efficiency locks be granted, once a quorum of the Redis
// nodes has reached Version, which is at least that of the Reconcile.
type FinishReconcile struct {
	Version uint64
}

// MarkRestored follows anything that may have rolled the log back. It stops
// efficiency locks until the log is reconciled with the Redis nodes. Versions go
// on far above both the present one and Version, so that no version that was
// forgotten is used for other policies. Ceiling is the largest one known. Fleet, if
// it is known, is the present one: it does not go back with the log, since its
// nodes do not.
type MarkRestored struct {
	Version uint64
	Ceiling fencing.Token
	Fleet   engine.Fleet
}

// SetMemberAPI records where the API of a member is reached; an empty Address
// removes the record.
type SetMemberAPI struct {
	ID      string
	Address string
}

const (
	// maxVersion is the largest version that may come from outside. The Redis
	// nodes compare versions as doubles.
	maxVersion = 1 << 52
	// maxText bounds join nonces, and the names and addresses of members.
	maxText = 1024
)

func (c *SetPolicy) validate() error {
	switch {
	case c.Policy.Mode == engine.AnyMode:
		return fmt.Errorf("%w: policy for %q: mode must be efficiency or correctness", engine.ErrInvalid, c.Policy.Prefix)
	case c.Policy.Next != engine.AnyMode:
		return fmt.Errorf("%w: policy for %q: the next mode is set by the service", engine.ErrInvalid, c.Policy.Prefix)
	}
	return c.Policy.Validate()
}

func (c *DeletePolicy) validate() error { return nil }

func (c *AbortMove) validate() error { return nil }

func (c *FinishMove) validate() error { return validVersion(c.Version) }

func (c *SetFleet) validate() error { return validateFleet(c.Fleet) }

// validateFleet also makes sure that there is one way to write "no fleet".
func validateFleet(f engine.Fleet) error {
	if f.IsZero() && (f.Namespace != "" || f.MaxTTL != 0) {
		return fmt.Errorf("%w: a fleet without Redis nodes has no namespace and no longest TTL", engine.ErrInvalid)
	}
	if slices.ContainsFunc(f.Addresses, func(a string) bool { return len(a) > maxText }) || len(f.Namespace) > maxText {
		return fmt.Errorf("%w: names and addresses of a fleet may have %d bytes", engine.ErrInvalid, maxText)
	}
	return f.Validate()
}

func (c *FinishFleet) validate() error { return validVersion(c.Version) }

func (c *AssignRange) validate() error {
	if c.Member == "" || c.Join == "" || len(c.Member) > maxText || len(c.Join) > maxText {
		return fmt.Errorf("%w: a range is for a member and a join nonce of 1 to %d bytes", engine.ErrInvalid, maxText)
	}
	return nil
}

func (c *RaiseCeiling) validate() error { return validCeiling(c.To) }

func (c *Reconcile) validate() error {
	if c.Version > maxVersion {
		return fmt.Errorf("%w: version %d is above %d", engine.ErrInvalid, c.Version, uint64(maxVersion))
	}
	return validCeiling(c.Ceiling)
}

func (c *FinishReconcile) validate() error { return validVersion(c.Version) }

func (c *MarkRestored) validate() error {
	if c.Version > maxCount/2 {
		return fmt.Errorf("%w: version %d", engine.ErrInvalid, c.Version)
	}
	if err := c.Fleet.Validate(); err != nil {
		return err
	}
	return validCeiling(c.Ceiling)
}

func (c *SetMemberAPI) validate() error {
	if c.ID == "" || len(c.ID) > maxText || len(c.Address) > maxText {
		return fmt.Errorf("%w: the API address of a member needs its ID, and both may have %d bytes", engine.ErrInvalid, maxText)
	}
	return nil
}

// validVersion refuses 0, which no change has.
func validVersion(version uint64) error {
	if version == 0 {
		return fmt.Errorf("%w: version 0", engine.ErrInvalid)
	}
	return nil
}

func validCeiling(ceiling fencing.Token) error {
	if ceiling > fencing.MaxToken {
		return fmt.Errorf("%w: ceiling %d", fencing.ErrInvalidToken, ceiling)
	}
	return nil
}

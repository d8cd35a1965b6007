package machine

import (
	"fmt"
	"slices"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// SetPolicy adds a policy or replaces the one for its prefix. If Version is not 0, it must
// be the current version. A policy that changes the mode of its locks starts a migration.
// Now makes EndRequests break the holders of locks that migrate to efficiency mode, and lets
// the leader skip the wait of a migration to correctness mode.
//
// Applied again during the migration, it may change the policy's timings or set Now. It
// cannot change the direction: that needs AbortMigration.
type SetPolicy struct {
	Policy  engine.Policy
	Version uint64
	Now     bool
}

// DeletePolicy removes the policy for a prefix. Version and Now have the meaning of
// SetPolicy.
type DeletePolicy struct {
	Prefix  string
	Version uint64
	Now     bool
}

// AbortMigration ends the migration of a prefix. Its locks keep their old mode.
type AbortMigration struct {
	Prefix string
}

// FinishMigration completes the migration of a prefix that Version started. Its locks then
// have the new mode. Applied twice, it is a no-op.
type FinishMigration struct {
	Prefix  string
	Version uint64
	// Granted is an upper bound of all tokens that were granted in efficiency mode before
	// Version, or None if nobody knows a better one than the ceiling. Later tokens of correctness
	// mode are above it.
	Granted fencing.Token
}

// SetFleet sets the Redis nodes of efficiency mode. If there was no fleet, or no lock was
// ever granted on it, it takes effect at once. Otherwise it starts a change that
// FinishFleet completes; meanwhile no lock in efficiency mode is granted. Setting the
// current fleet cancels a change in progress. If Version is not 0, it must be the current
// version. Now lets the leader skip the wait for leases of the old fleet. Force lets it
// skip the preparation of the old nodes. With Force it also takes effect at once in a log
// that was rolled back, whose fleet may have been replaced since; the log then reconciles
// with the new fleet.
type SetFleet struct {
	Fleet   engine.Fleet
	Version uint64
	Now     bool
	Force   bool
}

// FinishFleet completes the change of fleet that Version started. Every later token of
// efficiency mode is above the current ceiling, and none is granted before
// FinishReconcile. Applied twice, it is a no-op.
type FinishFleet struct {
	Version uint64
}

// NameLife names a life of a Redis node in the place of its former one. If Version is not 0,
// it must be the current version. Applied twice, it has one outcome.
//
// Callers may still use the former set of lives under older versions. The life must not
// vote before CloseSets has removed that set, and thereby given it a floor.
type NameLife struct {
	Member  string
	Life    string
	Version uint64
}

// FinishRecovery records that a life votes. From then on its floor initialises no node: one
// that is not initialised, although its life voted, was rolled back together with its
// memory.
type FinishRecovery struct {
	Member string
	Life   string
}

// CloseSets removes the sets of lives of versions below Version: they cannot grant any
// more. A life that waited for that gets a floor.
type CloseSets struct {
	Version uint64
	// Granted is an upper bound of all tokens that were granted under these versions, or
	// None if nobody knows a better one than the ceiling. Then the ceiling becomes the floor, and
	// is raised.
	Granted fencing.Token
}

// RaiseCeiling raises the ceiling of the Redis nodes. It is never lowered.
type RaiseCeiling struct {
	To fencing.Token
}

// Reconcile moves the log past the largest version and ceiling that the Redis nodes, or an
// operator, report. It is for a log that was rolled back or that uses a fleet for the
// first time. If At is not 0, it must be the current version: the reports are of the fleet
// of that version.
type Reconcile struct {
	At      uint64
	Version uint64
	Ceiling fencing.Token
	// Lives are the lives that vote in the fleet already, by the order of its addresses;
	// nil if there is none.
	Lives []string
	// Past is the set of lives that callers may use under versions that a log has
	// forgotten when it was rolled back, or nil.
	Past []string
}

// FinishReconcile allows grants in efficiency mode, after a quorum of the Redis nodes has
// reached Version, which is at least the version of the Reconcile.
type FinishReconcile struct {
	Version uint64
}

// MarkRestored is applied after every operation that may have rolled the log back. It stops
// grants in efficiency mode until the log is reconciled with the Redis nodes. Versions
// continue far above both the current one and Version, so that no forgotten version is
// used for other policies. Ceiling is the largest known ceiling. With FleetSet, Fleet is the
// current fleet: it is not rolled back with the log, because its nodes are not. With FleetUnused
// it has never granted a lock, so there is nothing to reconcile, and neither mode stops.
//
// A log without a fleet has no nodes that could report: neither mode stops, and the tokens of
// the next fleet start far above those of one that the log may have forgotten.
type MarkRestored struct {
	Version     uint64
	Ceiling     fencing.Token
	Fleet       engine.Fleet
	FleetSet    bool
	FleetUnused bool
}

// SetMemberAPI sets the API address of a member. An empty Address removes it.
type SetMemberAPI struct {
	ID      string
	Address string
}

const (
	// maxVersion is the largest version in a command. The Redis nodes compare versions
	// as doubles.
	maxVersion = 1 << 52
	// maxText limits the names of lives, and the names and addresses of members.
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

func (c *AbortMigration) validate() error { return nil }

func (c *FinishMigration) validate() error { return validGranted(c.Version, c.Granted) }

func (c *SetFleet) validate() error { return validateFleet(c.Fleet) }

// validateFleet validates a fleet. "No fleet" has exactly one encoding.
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

func (c *NameLife) validate() error { return validLife(c.Member, c.Life) }

func (c *FinishRecovery) validate() error { return validLife(c.Member, c.Life) }

func validLife(member, life string) error {
	if member == "" || life == "" || len(member) > maxText || len(life) > maxText {
		return fmt.Errorf("%w: a member and its life have 1 to %d bytes", engine.ErrInvalid, maxText)
	}
	return nil
}

func (c *CloseSets) validate() error { return validGranted(c.Version, c.Granted) }

func (c *RaiseCeiling) validate() error { return validCeiling(c.To) }

func (c *Reconcile) validate() error {
	if c.Version > maxVersion {
		return fmt.Errorf("%w: version %d is above %d", engine.ErrInvalid, c.Version, uint64(maxVersion))
	}
	if err := validateLives(c.Lives); err != nil {
		return err
	}
	if slices.ContainsFunc(c.Past, func(life string) bool { return len(life) > maxText }) {
		return fmt.Errorf("%w: a life has more than %d bytes", engine.ErrInvalid, maxText)
	}
	return validCeiling(c.Ceiling)
}

// validateLives refuses a life that is named twice: it would have two votes.
func validateLives(lives []string) error {
	for i, life := range lives {
		if len(life) > maxText || life != "" && slices.Contains(lives[:i], life) {
			return fmt.Errorf("%w: life %q is named twice, or has more than %d bytes", engine.ErrInvalid, life, maxText)
		}
	}
	return nil
}

func (c *FinishReconcile) validate() error { return validVersion(c.Version) }

func (c *MarkRestored) validate() error {
	if c.Version > maxCount/2 {
		return fmt.Errorf("%w: version %d", engine.ErrInvalid, c.Version)
	}
	if err := validateFleet(c.Fleet); err != nil {
		return err
	}
	if !c.FleetSet && (c.FleetUnused || !c.Fleet.IsZero()) {
		return fmt.Errorf("%w: a fleet that was not set", engine.ErrInvalid)
	}
	return validCeiling(c.Ceiling)
}

func (c *SetMemberAPI) validate() error {
	if c.ID == "" || len(c.ID) > maxText || len(c.Address) > maxText {
		return fmt.Errorf("%w: the API address of a member needs its ID, and both may have %d bytes", engine.ErrInvalid,
			maxText)
	}
	return nil
}

// validVersion refuses 0, which is the version of no change.
func validVersion(version uint64) error {
	if version == 0 {
		return fmt.Errorf("%w: version 0", engine.ErrInvalid)
	}
	return nil
}

// validGranted validates the version of a change and the bound of the tokens granted before it.
func validGranted(version uint64, granted fencing.Token) error {
	if err := validVersion(version); err != nil {
		return err
	}
	return validCeiling(granted)
}

func validCeiling(ceiling fencing.Token) error {
	if ceiling > fencing.MaxToken {
		return fmt.Errorf("%w: ceiling %d", fencing.ErrInvalidToken, ceiling)
	}
	return nil
}

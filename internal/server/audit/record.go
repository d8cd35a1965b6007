package audit

import (
	"time"
)

// Event says what happened.
type Event string

// The events.
const (
	Grant   Event = "grant"   // a lease was granted
	Release Event = "release" // the holder of a lease released it, or closed its session
	Expire  Event = "expire"  // a lease was lost because it was not renewed
	Break   Event = "break"   // a lease was taken away from its holder
	Sign    Event = "sign"    // the service signed the token of a lease

	Unauthenticated Event = "unauthenticated" // a call without a valid secret or certificate was refused
	Forbidden       Event = "forbidden"       // a call was refused because its user lacks a right

	UserAdd    Event = "user-add"    // a reload of the users file added a user
	UserChange Event = "user-change" // a reload changed the secret or the rights of a user
	UserRemove Event = "user-remove" // a reload removed a user

	PolicySet      Event = "policy-set"
	PolicyDelete   Event = "policy-delete"
	MigrationAbort Event = "migration-abort"

	FleetSet Event = "fleet-set" // the Redis nodes were changed
	FloorSet Event = "floor-set" // an operator provided the token floor of efficiency mode

	MemberAdd      Event = "member-add" // a node joined without a vote
	MemberPromote  Event = "member-promote"
	MemberAnnounce Event = "member-announce" // a member has another API address
	MemberJoin     Event = "member-join"     // a member was told to join a cluster
	MemberRemove   Event = "member-remove"
	LeaderTransfer Event = "leader-transfer"

	SnapshotSave    Event = "snapshot-save"
	SnapshotRestore Event = "snapshot-restore"

	// LinesLost replaces lines that were lost.
	LinesLost Event = "lines-lost"
)

// isRefusal reports whether a caller without any right can cause the event.
func (e Event) isRefusal() bool { return e == Unauthenticated || e == Forbidden }

// LineVersion is the version of the format of a line. Lines of version 1 have no field that
// says so; later ones have the field version. See docs/adr/0030-frozen-formats.md.
const LineVersion = 1

// Record is one line of the log. Write fills in the time, the member, and what the
// context knows about the caller.
type Record struct {
	Time      time.Time `json:"time"`
	Member    string    `json:"member"`
	Event     Event     `json:"event"`
	User      string    `json:"user,omitempty"`    // as authenticated
	Address   string    `json:"address,omitempty"` // of the caller
	Via       string    `json:"via,omitempty"`     // the address of the member that forwarded the call
	Method    string    `json:"method,omitempty"`  // the refused call
	Holder    string    `json:"holder,omitempty"`  // as the client claims
	Resources []string  `json:"resources,omitempty"`
	Token     uint64    `json:"token,omitempty"`
	Mode      string    `json:"mode,omitempty"`
	Subject   string    `json:"subject,omitempty"` // the user, member, prefix or nodes that the event is about
	Code      string    `json:"code,omitempty"`    // of the error; empty after success
	Detail    string    `json:"detail,omitempty"`
	Lost      uint64    `json:"lost,omitempty"` // the number of lost lines
}

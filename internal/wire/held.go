package wire

import (
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// FromHeld converts a lease in efficiency mode to a message. The Operation carries its
// session.
func FromHeld(h engine.Held) *pb.HeldLease {
	return &pb.HeldLease{Nonce: uint64(h.Nonce), Name: h.Name, Resources: names(h.Resources), Token: uint64(h.Token),
		TtlNanos: int64(h.TTL), Holder: h.Holder, Metadata: h.Metadata}
}

// ToHeld converts a message to a lease in efficiency mode.
func ToHeld(session engine.SessionID, m *pb.HeldLease) engine.Held {
	return engine.Held{Session: session, Nonce: engine.Nonce(m.GetNonce()), Name: m.GetName(),
		Resources: Resources(m.GetResources()...),
		Token:     fencing.Token(m.GetToken()), TTL: time.Duration(m.GetTtlNanos()), Holder: m.GetHolder(),
		Metadata: m.GetMetadata()}
}

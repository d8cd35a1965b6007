package wire

import (
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// Held is a lease in efficiency mode: all that a member has to know to renew or
// release it. It has the fields of redlockadapter.Held, so that one converts to
// the other.
type Held struct {
	// Name is the attempt as the Redis nodes know it, empty if its acquire was
	// never answered.
	Name      string
	Session   lease.SessionID
	Nonce     lease.Nonce
	Resources []fencing.Resource
	Token     fencing.Token
	TTL       time.Duration
	Holder    string
	Metadata  map[string]string
}

// FromHeld is a lease as a message. Its session travels in the Operation.
func FromHeld(h Held) *pb.HeldLease {
	return &pb.HeldLease{Nonce: uint64(h.Nonce), Name: h.Name, Resources: names(h.Resources), Token: uint64(h.Token),
		TtlNanos: int64(h.TTL), Holder: h.Holder, Metadata: h.Metadata}
}

// ToHeld is the other way.
func ToHeld(session lease.SessionID, m *pb.HeldLease) Held {
	return Held{Session: session, Nonce: lease.Nonce(m.GetNonce()), Name: m.GetName(), Resources: Resources(m.GetResources()...),
		Token: fencing.Token(m.GetToken()), TTL: time.Duration(m.GetTtlNanos()), Holder: m.GetHolder(), Metadata: m.GetMetadata()}
}

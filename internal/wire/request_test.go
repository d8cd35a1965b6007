package wire

import (
	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// FromRequest converts a request to a message of the stream. Clients encode requests without it: see AppendAcquire.
func FromRequest(r *engine.Request) *pb.AcquireCall {
	return &pb.AcquireCall{Nonce: uint64(r.Nonce), Resources: names(r.Resources), Mode: ModeText(r.Mode), Wait: r.Wait,
		Holder: r.Holder, Metadata: r.Metadata, Shared: r.Kind == engine.Shared, Permits: int32(r.Permits)}
}

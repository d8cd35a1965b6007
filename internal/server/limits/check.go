package limits

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// ErrSlow ends the stream of a client that does not read.
var ErrSlow = fmt.Errorf("%w: the client does not read its stream, so the service ends it; sessions stay open "+
	"until their TTL passes: "+
	"connect again and attach them", engine.ErrLimit)

// CheckSize checks the size of a request.
func (l *Limits) CheckSize(bytes int) error {
	if bytes > l.RequestBytes {
		return fmt.Errorf("%w: it has %d bytes, and limit-request-bytes allows %d", wire.ErrTooLarge, bytes, l.RequestBytes)
	}
	return nil
}

// CheckOperation checks the size of an operation of a session stream.
func (l *Limits) CheckOperation(op *pb.Operation) error {
	size := proto.Size(op)
	if renewed := len(op.GetRenew().GetLeases()); renewed > 1 {
		size /= renewed
	}
	return l.CheckSize(size)
}

// CheckRequest checks the contents of an acquire.
func (l *Limits) CheckRequest(r *engine.Request) error {
	if len(r.Resources) > l.SetSize {
		return fmt.Errorf("%w: the set has %d locks, and limit-set-size allows %d", engine.ErrInvalid, len(r.Resources),
			l.SetSize)
	}
	for _, name := range r.Resources {
		if len(name) > l.NameBytes {
			return fmt.Errorf("%w: the name %.40q... has %d bytes, and limit-name-bytes allows %d", fencing.ErrInvalidResource,
				string(name), len(name), l.NameBytes)
		}
	}
	size := 0
	for key, value := range r.Metadata {
		size += len(key) + len(value)
	}
	if size > l.MetadataBytes {
		return fmt.Errorf("%w: the metadata has %d bytes, and limit-metadata-bytes allows %d", engine.ErrInvalid, size,
			l.MetadataBytes)
	}
	return nil
}

// CheckTTL checks the TTL of a session or lease.
func (l *Limits) CheckTTL(ttl time.Duration) error {
	if ttl < l.TTLMin || ttl > l.TTLMax {
		return fmt.Errorf("%w: ttl (%v) must be from %v to %v, the values of %s and %s", engine.ErrInvalid, ttl, l.TTLMin,
			l.TTLMax, TTLMinName, TTLMaxName)
	}
	return nil
}

package wire

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// Header has the fields that all operations of a stream share.
type Header struct {
	ID          uint64 // unique among the unanswered operations of the stream
	Session     engine.SessionID
	Traceparent string // empty if the call is not traced
}

// The numbers of the fields of SessionRequest, Operation, AcquireCall and ReleaseCall. All
// are below 16, so that the tag of a field is one byte.
const (
	fieldOperations = 1

	fieldID          = 1
	fieldSession     = 2
	fieldAcquire     = 5
	fieldRelease     = 7
	fieldTraceparent = 9

	fieldNonce     = 1
	fieldResources = 2
	fieldMode      = 3
	fieldWait      = 4
	fieldHolder    = 5
	fieldMetadata  = 6
	fieldShared    = 7
	fieldPermits   = 8
	fieldTTL       = 9

	fieldKey   = 1
	fieldValue = 2
)

// AppendOperation appends an operation to an encoded SessionRequest. It sets the id and the
// session of the operation.
func AppendOperation(b []byte, h Header, op *pb.Operation) ([]byte, error) {
	op.Id, op.Session, op.Traceparent = h.ID, h.Session[:], h.Traceparent
	b = protowire.AppendTag(b, fieldOperations, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(proto.Size(op)))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, op)
}

// AppendAcquire appends an operation with an AcquireCall to an encoded SessionRequest. It
// encodes the request without building messages. ttl is 0, or the TTL of a lease in
// efficiency mode.
func AppendAcquire(b []byte, h Header, r *engine.Request, ttl time.Duration) []byte {
	mode := ModeText(r.Mode)
	size := sizeUint(uint64(r.Nonce)) + sizeString(mode) + sizeBool(r.Wait) + sizeString(r.Holder) +
		sizeBool(r.Kind == engine.Shared) + sizeUint(uint64(r.Permits)) + sizeUint(uint64(ttl))
	for _, name := range r.Resources {
		size += sizeBytes(len(name))
	}
	for key, value := range r.Metadata {
		size += sizeBytes(sizeBytes(len(key)) + sizeBytes(len(value)))
	}
	b = h.append(b, fieldAcquire, size)
	b = appendUint(b, fieldNonce, uint64(r.Nonce))
	for _, name := range r.Resources {
		b = appendBytes(b, fieldResources, string(name))
	}
	b = appendString(b, fieldMode, mode)
	b = appendBool(b, fieldWait, r.Wait)
	b = appendString(b, fieldHolder, r.Holder)
	for key, value := range r.Metadata {
		b = protowire.AppendTag(b, fieldMetadata, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeBytes(len(key))+sizeBytes(len(value))))
		b = appendBytes(b, fieldKey, key)
		b = appendBytes(b, fieldValue, value)
	}
	b = appendBool(b, fieldShared, r.Kind == engine.Shared)
	b = appendUint(b, fieldPermits, uint64(r.Permits))
	b = appendUint(b, fieldTTL, uint64(ttl))
	return appendString(b, fieldTraceparent, h.Traceparent)
}

// AppendRelease appends an operation with a ReleaseCall to an encoded SessionRequest.
func AppendRelease(b []byte, h Header, nonce engine.Nonce) []byte {
	b = h.append(b, fieldRelease, sizeUint(uint64(nonce)))
	b = appendUint(b, fieldNonce, uint64(nonce))
	return appendString(b, fieldTraceparent, h.Traceparent)
}

// append appends the beginning of an operation whose call has this size. The call follows,
// and then the traceparent.
func (h *Header) append(b []byte, call protowire.Number, size int) []byte {
	b = protowire.AppendTag(b, fieldOperations, protowire.BytesType)
	total := sizeUint(h.ID) + sizeBytes(len(h.Session)) + sizeBytes(size) + sizeString(h.Traceparent)
	b = protowire.AppendVarint(b, uint64(total))
	b = appendUint(b, fieldID, h.ID)
	b = protowire.AppendTag(b, fieldSession, protowire.BytesType)
	b = protowire.AppendBytes(b, h.Session[:])
	b = protowire.AppendTag(b, call, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(size))
}

// The functions below encode a field, and return its size. Fields with their default are
// left out, except by appendBytes.

func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func sizeUint(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

func appendBool(b []byte, field protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return appendUint(b, field, 1)
}

func sizeBool(v bool) int {
	if !v {
		return 0
	}
	return 2
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return appendBytes(b, field, s)
}

func sizeString(s string) int {
	if s == "" {
		return 0
	}
	return sizeBytes(len(s))
}

func appendBytes(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func sizeBytes(n int) int { return 1 + protowire.SizeBytes(n) }

package remote

import (
	"fmt"

	"google.golang.org/grpc/mem"

	"github.com/leased-project/leased/internal/wire"
)

// bufferSize is the capacity of a new buffer for operations. gRPC reuses buffers above
// 1 KiB.
const bufferSize = 4096

// codec is the gRPC codec of the session stream. It sends a SessionRequest that is already
// encoded, as a *[]byte, and receives a *wire.Response.
type codec struct{}

// newBuffer returns an empty buffer for a message. Marshal passes it to gRPC, which frees
// it.
func newBuffer() *[]byte {
	b := mem.DefaultBufferPool().Get(bufferSize)
	*b = (*b)[:0]
	return b
}

// Marshal returns the encoded message.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("encode a message of the session stream: unexpected type %T", v)
	}
	return mem.BufferSlice{mem.NewBuffer(b, mem.DefaultBufferPool())}, nil
}

// Unmarshal decodes a SessionResponse.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	response, ok := v.(*wire.Response)
	if !ok {
		return fmt.Errorf("decode a message of the session stream: unexpected type %T", v)
	}
	if len(data) == 1 {
		return response.Decode(data[0].ReadOnlyData())
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return response.Decode(buffer.ReadOnlyData())
}

// Name returns the name of the protobuf codec, because the bytes are the same.
func (codec) Name() string { return "proto" }

package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// appendFormat is the first byte of a connection for AppendEntries. The Raft library
	// begins its own connections with a smaller byte.
	appendFormat = 'A'
	// AppendVersion is the second byte of such a connection: the version of the format
	// of its messages. Builds before the first release wrote two formats as version 1. See
	// docs/adr/0030-frozen-formats.md.
	AppendVersion = 2
	// maxMessage is the maximum size of a message. A request has at most 64 entries, and
	// an entry about 1 MiB.
	maxMessage = 256 << 20
	// maxEntries bounds the entries of a request. The Raft library sends at most 64.
	maxEntries = 1 << 10
	// readStep is how much of a message is read before more memory is allocated for it.
	readStep = 1 << 20
)

// errMessage reports a message that is not in the format.
var errMessage = errors.New("malformed message of a peer")

// A message is its size in 4 bytes, big endian, and then its fields: numbers as uvarints, and
// byte strings after their lengths. A response starts with the text of an error. If it is
// not empty, nothing follows. This much is the same in every version, so that a peer of
// another build can read why it is refused.

// appendRequest appends the message of a request to b. The field Leader is not sent, because
// the header has the address.
func appendRequest(b []byte, r *raft.AppendEntriesRequest) []byte {
	b, start := begin(b)
	b = appendHeader(b, r.RPCHeader)
	b = appendNumbers(b, r.Term, r.PrevLogEntry, r.PrevLogTerm, r.LeaderCommitIndex, uint64(len(r.Entries)))
	for _, e := range r.Entries {
		var at int64
		if !e.AppendedAt.IsZero() {
			at = e.AppendedAt.UnixNano()
		}
		b = appendNumbers(b, e.Index, e.Term, uint64(e.Type), uint64(at))
		b = appendBytes(b, e.Data)
		b = appendBytes(b, e.Extensions)
	}
	return finish(b, start)
}

// appendResponse appends the message of a response, or of an error.
func appendResponse(b []byte, r *raft.AppendEntriesResponse, err error) []byte {
	b, start := begin(b)
	if err != nil {
		text := err.Error()
		if text == "" {
			text = "error without a text"
		}
		return finish(appendBytes(b, []byte(text)), start)
	}
	b = appendBytes(b, nil)
	b = appendHeader(b, r.RPCHeader)
	b = appendNumbers(b, r.Term, r.LastLog, number(r.Success), number(r.NoRetryBackoff))
	return finish(b, start)
}

func begin(b []byte) (message []byte, start int) { return append(b, 0, 0, 0, 0), len(b) }

func finish(b []byte, start int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

func appendHeader(b []byte, h raft.RPCHeader) []byte {
	b = appendNumbers(b, uint64(h.ProtocolVersion))
	return appendBytes(appendBytes(b, h.ID), h.Addr)
}

func appendBytes(b, value []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

func appendNumbers(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func number(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// readMessage reads the fields of a message. It returns io.EOF if the connection ends before
// the message.
func readMessage(r io.Reader, size *[4]byte) ([]byte, error) {
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	left := int(binary.BigEndian.Uint32(size[:]))
	if left > maxMessage {
		return nil, fmt.Errorf("%w: it has %d bytes, and the maximum is %d", errMessage, left, maxMessage)
	}
	body := make([]byte, 0, min(left, readStep))
	for left > 0 {
		step := min(left, readStep)
		at := len(body)
		body = append(body, make([]byte, step)...)
		if _, err := io.ReadFull(r, body[at:]); err != nil {
			return nil, fmt.Errorf("%w: %w", errMessage, err)
		}
		left -= step
	}
	return body, nil
}

// decodeRequest returns the request in a message. It shares the memory of the message.
func decodeRequest(body []byte) (*raft.AppendEntriesRequest, error) {
	f := fields{rest: body}
	r := &raft.AppendEntriesRequest{RPCHeader: f.header(),
		Term: f.number(), PrevLogEntry: f.number(), PrevLogTerm: f.number(), LeaderCommitIndex: f.number()}
	const smallest = 6 // bytes of an entry
	count := f.number()
	if count > min(maxEntries, uint64(len(f.rest)/smallest)) {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", errMessage, count, len(f.rest))
	}
	if count > 0 {
		entries := make([]raft.Log, count)
		r.Entries = make([]*raft.Log, count)
		for i := range entries {
			entries[i] = f.entry()
			r.Entries[i] = &entries[i]
		}
	}
	return r, f.end()
}

// decodeResponse reads a message into a response. answer is the error of the peer.
func decodeResponse(body []byte, r *raft.AppendEntriesResponse) (answer, err error) {
	f := fields{rest: body}
	if text := f.bytes(); len(text) > 0 {
		return errors.New(string(text)), f.end()
	}
	*r = raft.AppendEntriesResponse{RPCHeader: f.header(), Term: f.number(), LastLog: f.number(), Success: f.flag(),
		NoRetryBackoff: f.flag()}
	return nil, f.end()
}

// fields reads the fields of a message. After the first malformed one it returns zero
// values, and end returns an error.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) number() uint64 {
	v, size := binary.Uvarint(f.rest)
	if size <= 0 || size > 1 && f.rest[size-1] == 0 { // only the shortest encoding
		f.fail()
		return 0
	}
	f.rest = f.rest[size:]
	return v
}

func (f *fields) bytes() []byte {
	size := f.number()
	if size > uint64(len(f.rest)) {
		f.fail()
	}
	if f.bad || size == 0 {
		return nil
	}
	value := f.rest[:size:size]
	f.rest = f.rest[size:]
	return value
}

func (f *fields) flag() bool {
	v := f.number()
	if v > 1 {
		f.fail()
	}
	return v == 1
}

func (f *fields) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(f.number()), ID: f.bytes(), Addr: f.bytes()}
}

func (f *fields) entry() raft.Log {
	e := raft.Log{Index: f.number(), Term: f.number()}
	kind := f.number()
	if kind > 255 {
		f.fail()
	}
	e.Type = raft.LogType(kind)
	if at := int64(f.number()); at != 0 {
		e.AppendedAt = time.Unix(0, at).UTC()
	}
	e.Data, e.Extensions = f.bytes(), f.bytes()
	return e
}

func (f *fields) fail() { f.bad, f.rest = true, nil }

// end returns an error unless all fields were well formed and nothing follows.
func (f *fields) end() error {
	if f.bad || len(f.rest) > 0 {
		return errMessage
	}
	return nil
}

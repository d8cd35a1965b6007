package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// ErrMalformed means that bytes are not a valid encoding.
var ErrMalformed = errors.New("malformed encoding")

// writer appends encodings. Each value has exactly one encoding, so equal states have
// equal bytes.
type writer struct{ data []byte }

func (w *writer) byte(b byte)         { w.data = append(w.data, b) }
func (w *writer) uint(n uint64)       { w.data = binary.AppendUvarint(w.data, n) }
func (w *writer) int(n int)           { w.uint(uint64(n)) }
func (w *writer) raw(b []byte)        { w.data = append(w.data, b...) }
func (w *writer) text(s string)       { w.int(len(s)); w.data = append(w.data, s...) }
func (w *writer) dur(d time.Duration) { w.uint(uint64(d)) }

func (w *writer) bool(b bool) {
	if b {
		w.byte(1)
	} else {
		w.byte(0)
	}
}

func (w *writer) resources(names []fencing.Resource) {
	w.int(len(names))
	for _, name := range names {
		w.text(string(name))
	}
}

func (w *writer) metadata(metadata map[string]string) {
	w.int(len(metadata))
	if len(metadata) == 0 {
		return
	}
	for _, key := range sortedKeys(metadata) {
		w.text(key)
		w.text(metadata[key])
	}
}

// reader decodes an encoding. It keeps the first error in err and then returns zero
// values, so that a decoder checks for errors once, at its end.
type reader struct {
	data []byte
	err  error
	last string // read by sameText
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
		r.data = nil
	}
}

func (r *reader) take(n int) []byte {
	if n > len(r.data) {
		r.fail("%d bytes wanted, %d left", n, len(r.data))
		return nil
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) bool() bool {
	b := r.byte()
	if b > 1 {
		r.fail("%d is no boolean", b)
	}
	return b == 1
}

func (r *reader) uint() uint64 {
	n, size := binary.Uvarint(r.data)
	if size <= 0 || size > 1 && r.data[size-1] == 0 {
		r.fail("bad number")
		return 0
	}
	r.data = r.data[size:]
	return n
}

// max reads a number that is at most limit.
func (r *reader) max(limit uint64) uint64 {
	n := r.uint()
	if n > limit {
		r.fail("%d is above %d", n, limit)
		return 0
	}
	return n
}

// count reads the number of items that follow. Each takes at least one byte, so that no
// count can make the decoder allocate more than the size of its input.
func (r *reader) count() int { return int(r.max(uint64(len(r.data)))) }

func (r *reader) text() string { return string(r.take(r.count())) }

// sameText reads a text that often equals the previous one, and then shares its memory.
func (r *reader) sameText() string {
	if b := r.take(r.count()); string(b) != r.last {
		r.last = string(b)
	}
	return r.last
}

func (r *reader) dur() time.Duration {
	return time.Duration(r.max(1<<63 - 1))
}

func (r *reader) token() fencing.Token { return fencing.Token(r.max(uint64(fencing.MaxToken))) }

func (r *reader) session() (id engine.SessionID) {
	copy(id[:], r.take(len(id)))
	return id
}

func (r *reader) resources() []fencing.Resource {
	names := make([]fencing.Resource, 0, min(r.peekCount(), engine.MaxResources))
	for range r.count() {
		names = append(names, fencing.Resource(r.text()))
	}
	return names
}

// peekCount returns what count will return.
func (r *reader) peekCount() int {
	ahead := *r
	return ahead.count()
}

func (r *reader) metadata() map[string]string {
	n := r.count()
	if n == 0 {
		return nil
	}
	metadata := make(map[string]string, min(n, engine.MaxMetadata))
	last := ""
	for i := range n {
		key := r.text()
		if i > 0 && key <= last {
			r.fail("metadata keys are not in ascending order")
		}
		metadata[key] = r.text()
		last = key
	}
	return metadata
}

// end checks that no bytes are left.
func (r *reader) end() error {
	if len(r.data) > 0 {
		r.fail("%d bytes too many", len(r.data))
	}
	return r.err
}

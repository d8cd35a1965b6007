package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// ErrMalformed means that bytes are not a valid encoding.
var ErrMalformed = errors.New("malformed encoding")

// codec writes values to data, or reads them from it. The same calls do both, so that the
// two directions cannot differ: each call takes pointers, and either appends the values or
// sets them. Each value has exactly one encoding, so equal states have equal bytes.
//
// A reading codec keeps the first error in err and then sets zero values, so that a decoder
// checks for errors once, at its end.
type codec struct {
	data     []byte // written so far, or not read yet
	reading  bool
	err      error
	lastText string // read by sharedText
}

func (c *codec) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
		c.data = nil
	}
}

// version codes the first byte, the version of a format. A reader refuses every other
// version: guessing would make replicas differ.
func (c *codec) version(format string, version byte) {
	found := version
	number(c, &found, math.MaxUint8)
	switch err := engine.CheckFormat(format, uint64(found), uint64(version)); {
	case err != nil && c.err == nil:
		c.err, c.data = err, nil
	case found != version:
		c.fail("%s version %d does not exist", format, found)
	}
}

// fields codes values of any type that occurs in the log or in a snapshot.
func (c *codec) fields(values ...any) {
	for _, field := range values {
		switch v := field.(type) {
		case *uint64:
			number(c, v, math.MaxUint64)
		case *time.Duration:
			number(c, v, math.MaxInt64)
		case *fencing.Token:
			number(c, v, uint64(fencing.MaxToken))
		case *engine.Nonce:
			number(c, v, math.MaxUint64)
		case *engine.Mode:
			number(c, v, math.MaxUint8)
		case *engine.Kind:
			number(c, v, math.MaxUint8)
		case *int: // permits and slots
			number(c, v, engine.MaxPermits)
		case *bool:
			c.bool(v)
		case *string:
			text(c, v)
		case *fencing.Resource:
			text(c, v)
		case *engine.SessionID:
			c.bytes(v[:])
		case *engine.Policy:
			c.fields(&v.Prefix, &v.Mode, &v.Next, &v.TTL, &v.Renew, &v.Drift, &v.LockDelay)
		case *engine.Fleet:
			c.fields(&v.Namespace, &v.Addresses, &v.MaxTTL)
		case *[]string:
			list(c, v, func(s *string) { text(c, s) })
		case *[]fencing.Resource:
			list(c, v, func(name *fencing.Resource) { text(c, name) })
		case *map[string]string:
			table(c, v, func(s *string) { text(c, s) })
		default:
			panic(fmt.Sprintf("machine: a %T has no encoding", v))
		}
	}
}

// number codes a number that is at most limit.
func number[T ~uint8 | ~int | ~int64 | ~uint64](c *codec, v *T, limit uint64) {
	if !c.reading {
		c.data = binary.AppendUvarint(c.data, uint64(*v))
		return
	}
	n, size := binary.Uvarint(c.data)
	switch {
	case size <= 0 || size > 1 && c.data[size-1] == 0:
		c.fail("bad number")
		n = 0
	case n > limit:
		c.fail("%d is above %d", n, limit)
		n = 0
	default:
		c.data = c.data[size:]
	}
	*v = T(n)
}

func (c *codec) bool(v *bool) {
	var n uint8
	if *v {
		n = 1
	}
	if number(c, &n, 1); c.reading {
		*v = n == 1
	}
}

// bytes codes bytes whose number the reader knows.
func (c *codec) bytes(v []byte) {
	if c.reading {
		copy(v, c.take(len(v)))
	} else {
		c.data = append(c.data, v...)
	}
}

func (c *codec) take(n int) []byte {
	if n > len(c.data) {
		c.fail("%d bytes wanted, %d left", n, len(c.data))
		return nil
	}
	b := c.data[:n]
	c.data = c.data[n:]
	return b
}

// count codes the number of items that follow. Each takes at least one byte, so that no
// count can make a reader allocate more than the size of its input.
func (c *codec) count(n int) int {
	number(c, &n, uint64(len(c.data)))
	return n
}

func text[T ~string](c *codec, v *T) {
	if n := c.count(len(*v)); c.reading {
		*v = T(c.take(n))
	} else {
		c.data = append(c.data, *v...)
	}
}

// sharedText codes a text that often equals the previous one. If it does, a reader shares
// its memory.
func (c *codec) sharedText(v *string) {
	if !c.reading {
		text(c, v)
		return
	}
	if b := c.take(c.count(0)); string(b) != c.lastText {
		c.lastText = string(b)
	}
	*v = c.lastText
}

// list codes a list. A reader sets nil for an empty one.
func list[T any](c *codec, v *[]T, item func(*T)) {
	n := c.count(len(*v))
	if c.reading && n > 0 {
		*v = make([]T, 0, min(n, engine.MaxResources))
	}
	for i := 0; i < n && c.err == nil; i++ {
		if c.reading {
			var zero T
			*v = append(*v, zero)
		}
		item(&(*v)[i])
	}
}

// table codes a map in ascending order of its keys. A reader leaves the map as it is if the
// table is empty.
func table[K ~string, V any](c *codec, m *map[K]V, value func(*V)) {
	n := c.count(len(*m))
	if !c.reading {
		for _, key := range sortedKeys(*m) {
			v := (*m)[key]
			text(c, &key)
			value(&v)
		}
		return
	}
	if *m == nil && n > 0 {
		*m = make(map[K]V, min(n, engine.MaxMetadata))
	}
	var last K
	for i := 0; i < n && c.err == nil; i++ {
		var key K
		var v V
		if text(c, &key); i > 0 && key <= last {
			c.fail("keys are not in ascending order")
		}
		value(&v)
		(*m)[key], last = v, key
	}
}

// end checks that a reader has read all bytes.
func (c *codec) end() error {
	if len(c.data) > 0 {
		c.fail("%d bytes too many", len(c.data))
	}
	return c.err
}

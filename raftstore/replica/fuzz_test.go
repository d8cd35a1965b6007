package replica

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// FuzzEntry checks that every log entry that a replica accepts has one encoding.
func FuzzEntry(f *testing.F) {
	position := Chain{Index: 1 << 40}
	position.Hash[3] = 7
	f.Add([]byte(nil))
	f.Add(EncodeEntry(Chain{}, nil))
	f.Add(EncodeEntry(position, []machine.Command{&machine.Lead{}, &machine.OpenSession{Session: engine.SessionID{1},
		TTL: time.Second}}))
	f.Add(append(EncodeEntry(position, nil), 0))
	short := EncodeEntry(Chain{Index: 6}, nil)
	f.Add(slices.Concat(short[:1], []byte{6 | 0x80, 0}, short[2:])) // an index with a longer encoding than necessary
	f.Fuzz(func(t *testing.T, data []byte) {
		l, commands, err := decodeEntry(data)
		if err != nil {
			requireRefused(t, err)
			return
		}
		at := Chain{Index: l.index}
		copy(at.Hash[:], l.hash[:])
		require.True(t, bytes.Equal(data, EncodeEntry(at, commands)), "a second encoding of one entry")
	})
}

// FuzzState checks that every state of a snapshot that a replica accepts has one
// encoding.
func FuzzState(f *testing.F) {
	m := machine.New()
	m.Apply(&machine.Lead{})
	m.Apply(&machine.OpenSession{Session: engine.SessionID{1}, TTL: time.Second})
	m.Apply(&machine.Acquire{Session: engine.SessionID{1}, Incarnation: m.SessionInfo(engine.SessionID{1}).Incarnation,
		Request: engine.Request{Nonce: 1, Resources: []fencing.Resource{"a"}}})
	f.Add([]byte(nil))
	f.Add(EncodeState(Chain{}, machine.New()))
	f.Add(EncodeState(Chain{Index: 5}, m))
	f.Add(append(EncodeState(Chain{Index: 5}, m), 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		chain, restored, err := DecodeState(data)
		if err != nil {
			requireRefused(t, err)
			return
		}
		require.True(t, bytes.Equal(data, EncodeState(chain, restored)), "a second encoding of one state")
	})
}

// requireRefused fails unless err says that bytes are malformed, or of a newer build.
func requireRefused(t *testing.T, err error) {
	t.Helper()
	if newer := (*engine.FormatError)(nil); !errors.As(err, &newer) {
		require.ErrorIs(t, err, machine.ErrMalformed)
	}
}

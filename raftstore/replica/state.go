package replica

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/machine"
)

// StateVersion is the first byte of a state: the version of its format. See
// docs/adr/0030-frozen-formats.md.
const StateVersion = 1

// EncodeState returns the form of a machine and its chain in a snapshot.
func EncodeState(c Chain, m *machine.Machine) []byte {
	return (&stateImage{c, m.Image(), &sync.Mutex{}}).encode()
}

// DecodeState reverses EncodeState.
func DecodeState(data []byte) (Chain, *machine.Machine, error) {
	var c Chain
	const header = 1 + len(c.Hash) + 8
	if err := checkVersion("state of a snapshot", data, StateVersion); err != nil {
		return c, nil, err
	}
	if len(data) < header {
		return c, nil, fmt.Errorf("%w: a state of %d bytes", machine.ErrMalformed, len(data))
	}
	copy(c.Hash[:], data[1:])
	c.Index = binary.BigEndian.Uint64(data[header-8:])
	m, err := machine.Restore(data[header:])
	return c, m, err
}

// copyPiece is the number of sessions and of requests that are copied without a pause, which
// takes about a millisecond.
const copyPiece = 4096

// stateImage is the state at one moment. It is copied and encoded while the machine applies
// further entries.
type stateImage struct {
	chain Chain
	image *machine.Image
	mu    sync.Locker // of the machine
}

func (s *stateImage) encode() []byte {
	for done := false; !done; {
		s.mu.Lock()
		done = s.image.Copy(copyPiece)
		s.mu.Unlock()
	}
	data := append([]byte{StateVersion}, s.chain.Hash[:]...)
	data = binary.BigEndian.AppendUint64(data, s.chain.Index)
	return append(data, s.image.Encode()...)
}

// Persist writes the state.
func (s *stateImage) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s.encode()); err != nil {
		_ = sink.Cancel()
		return fmt.Errorf("write snapshot: %w", err)
	}
	return sink.Close()
}

// Release drops the state.
func (s *stateImage) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.image.Drop()
	s.image = nil
}

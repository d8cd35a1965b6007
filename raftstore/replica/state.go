package replica

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/machine"
)

// StateVersion is the first byte of a state: the version of its format. See
// docs/adr/0030-frozen-formats.md.
const StateVersion = 1

// EncodeState returns the form of a machine and its chain in a snapshot.
func EncodeState(c Chain, m *machine.Machine) []byte {
	data := append([]byte{StateVersion}, c.Hash[:]...)
	data = binary.BigEndian.AppendUint64(data, c.Index)
	return append(data, m.Snapshot()...)
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

// stateImage is a snapshot that is complete in memory.
type stateImage []byte

func (s stateImage) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		_ = sink.Cancel()
		return fmt.Errorf("write snapshot: %w", err)
	}
	return sink.Close()
}

func (s stateImage) Release() {}

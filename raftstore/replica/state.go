package replica

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/machine"
)

// stateVersion is the first byte of a state.
const stateVersion = 1

// EncodeState returns the form of a machine and its chain in a snapshot.
func EncodeState(c Chain, m *machine.Machine) []byte {
	data := append([]byte{stateVersion}, c.Hash[:]...)
	data = binary.BigEndian.AppendUint64(data, c.Index)
	return append(data, m.Snapshot()...)
}

// DecodeState reverses EncodeState.
func DecodeState(data []byte) (Chain, *machine.Machine, error) {
	var c Chain
	const header = 1 + len(c.Hash) + 8
	if len(data) < header || data[0] != stateVersion {
		return c, nil, fmt.Errorf("%w: state of an unknown version", machine.ErrMalformed)
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

package replica

import (
	"encoding/binary"
	"fmt"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/proposer"
)

const (
	// EntryVersion is the first byte of every entry: the version of its format. See
	// docs/adr/0030-frozen-formats.md.
	EntryVersion = 1
	// linkSize is how much of the chain's hash an entry carries.
	linkSize = 16
)

// link is the position of the proposer of an entry: the last entry that it had
// applied, and its chain there. A replica at the same entry must have the same
// chain.
type link struct {
	index uint64
	hash  [linkSize]byte
}

func (c Chain) link() link { return link{index: c.Index, hash: [linkSize]byte(c.Hash[:linkSize])} }

// EncodeEntry returns the form of commands in the log. position is the chain of
// the proposer; the zero Chain matches every replica. Without commands the entry
// is a barrier.
func EncodeEntry(position Chain, commands []machine.Command) []byte {
	size := 1 + binary.MaxVarintLen64 + linkSize
	for _, c := range commands {
		size += proposer.Size(c)
	}
	l := position.link()
	data := make([]byte, 0, size)
	data = append(data, EntryVersion)
	data = binary.AppendUvarint(data, l.index)
	data = append(data, l.hash[:]...)
	return machine.AppendEncoded(data, commands...)
}

func decodeEntry(data []byte) (link, []machine.Command, error) {
	if err := checkVersion("log entry", data, EntryVersion); err != nil {
		return link{}, nil, err
	}
	index, size := binary.Uvarint(data[1:])
	if size <= 0 || len(data) < 1+size+linkSize {
		return link{}, nil, fmt.Errorf("%w: entry without a link", machine.ErrMalformed)
	}
	if size > 1 && data[size] == 0 {
		return link{}, nil, fmt.Errorf("%w: the index of the link is not in its shortest encoding", machine.ErrMalformed)
	}
	l := link{index: index}
	rest := data[1+size:]
	copy(l.hash[:], rest)
	commands, err := machine.Decode(rest[linkSize:])
	return l, commands, err
}

// checkVersion checks the first byte of an entry or a state. A newer version is an
// *engine.FormatError.
func checkVersion(format string, data []byte, version byte) error {
	if len(data) == 0 {
		return fmt.Errorf("%w: the %s is empty", machine.ErrMalformed, format)
	}
	if err := engine.CheckFormat(format, uint64(data[0]), uint64(version)); err != nil {
		return err
	}
	if data[0] != version {
		return fmt.Errorf("%w: %s version %d does not exist", machine.ErrMalformed, format, data[0])
	}
	return nil
}

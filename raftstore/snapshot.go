package raftstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

// SnapshotFileVersion is the version of the format of a saved snapshot. Its first line is
// snapshotMagic with this number, the second is a SnapshotInfo as JSON, and the rest is the
// state. See docs/adr/0030-frozen-formats.md.
const SnapshotFileVersion = 1

const snapshotMagic = "leased snapshot "

// maxSnapshot limits the size of a snapshot, which is read into memory.
const maxSnapshot = 8 << 30

// SnapshotInfo describes a saved snapshot.
type SnapshotInfo struct {
	Index      uint64         `json:"index"` // of the last applied entry
	Term       uint64         `json:"term"`
	Size       int64          `json:"size"`
	SHA256     string         `json:"sha256"`
	ChainIndex uint64         `json:"chainIndex"`
	ChainHash  string         `json:"chainHash"`
	LastToken  fencing.Token  `json:"lastToken"`
	Generation uint64         `json:"generation"`
	Counts     machine.Counts `json:"counts"`
}

// SaveSnapshot writes the state of this replica, for a backup. The state of a follower may be
// slightly behind.
func (n *Node) SaveSnapshot(ctx context.Context, w io.Writer) (SnapshotInfo, error) {
	info, state, err := n.takeSnapshot(ctx)
	if err == nil {
		err = writeSnapshot(w, info, state)
	}
	if err != nil {
		return SnapshotInfo{}, fmt.Errorf("save snapshot: %w", err)
	}
	return info, nil
}

// takeSnapshot returns the newest snapshot of this replica, after it has made one.
func (n *Node) takeSnapshot(ctx context.Context) (info SnapshotInfo, state []byte, err error) {
	if n.Leads() { // the Raft library takes no snapshot while a change of members is the last entry
		if err := n.barrier(ctx); err != nil {
			return info, nil, err
		}
	}
	if err := n.wait(ctx, n.raft.Snapshot()); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return info, nil, err
	}
	list, err := n.snapshots.List()
	if err != nil {
		return info, nil, err
	}
	if len(list) == 0 {
		return info, nil, fmt.Errorf("%w: the node has no snapshot yet", ErrSnapshot)
	}
	meta, source, err := n.snapshots.Open(list[0].ID)
	if err != nil {
		return info, nil, err
	}
	defer source.Close()
	if state, err = io.ReadAll(source); err != nil {
		return info, nil, err
	}
	info, err = describe(state)
	info.Index, info.Term = meta.Index, meta.Term
	return info, state, err
}

func writeSnapshot(w io.Writer, info SnapshotInfo, state []byte) error {
	header, err := json.Marshal(info)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%d\n%s\n", snapshotMagic, SnapshotFileVersion, header)
	}
	if err == nil {
		_, err = w.Write(state)
	}
	return err
}

// describe returns the description of a state.
func describe(state []byte) (SnapshotInfo, error) {
	chain, m, err := replica.DecodeState(state)
	if err != nil {
		return SnapshotInfo{}, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	sum := sha256.Sum256(state)
	return SnapshotInfo{Size: int64(len(state)), SHA256: hex.EncodeToString(sum[:]), ChainIndex: chain.Index,
		ChainHash: chain.String(),
		LastToken: m.LastToken(), Generation: m.Generation(), Counts: m.Count()}, nil
}

// InspectSnapshot validates a saved snapshot and describes it.
func InspectSnapshot(r io.Reader) (SnapshotInfo, error) {
	info, _, err := readSnapshot(r)
	return info, err
}

// checkSnapshotFile checks the first line of a saved snapshot.
func checkSnapshotFile(line string) error {
	number, ok := strings.CutPrefix(line, snapshotMagic)
	version, err := strconv.ParseUint(number, 10, 8)
	if !ok || err != nil || version == 0 {
		return fmt.Errorf("%w: the file is not a snapshot of leased", ErrSnapshot)
	}
	if err := engine.CheckFormat("file of a saved snapshot", version, SnapshotFileVersion); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	return nil
}

func readSnapshot(r io.Reader) (SnapshotInfo, []byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSnapshot))
	if err != nil {
		return SnapshotInfo{}, nil, fmt.Errorf("read snapshot: %w", err)
	}
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	if err := checkSnapshotFile(string(first)); err != nil {
		return SnapshotInfo{}, nil, err
	}
	header, state, ok := bytes.Cut(rest, []byte("\n"))
	var written SnapshotInfo
	if !ok || json.Unmarshal(header, &written) != nil {
		return SnapshotInfo{}, nil, fmt.Errorf("%w: the second line is malformed", ErrSnapshot)
	}
	sum := sha256.Sum256(state)
	if hex.EncodeToString(sum[:]) != written.SHA256 {
		return SnapshotInfo{}, nil, fmt.Errorf("%w: the checksum of %d bytes is not %s; the file is truncated or "+
			"damaged, use another one",
			ErrSnapshot, len(state), written.SHA256)
	}
	found, err := describe(state)
	if err != nil {
		return SnapshotInfo{}, nil, err
	}
	found.Index, found.Term = written.Index, written.Term
	if found != written {
		return SnapshotInfo{}, nil, fmt.Errorf("%w: the state does not match the second line", ErrSnapshot)
	}
	return found, state, nil
}

// RestoreSnapshot replaces the state of the whole cluster with a saved one. This node must
// lead. Everything granted since the snapshot is forgotten. So all later tokens are larger by
// at least fencing.FloorStep than any in the snapshot or in the current state. The raise is
// part of the restored state, so that no grant can precede it.
//
// All sessions end, and with them all leases, including those of the snapshot: some of them
// were released since, and their clients would renew them forever. Each client learns that it
// has lost its leases, and acquires again. No lock in efficiency mode is granted until the log
// is reconciled with the Redis nodes.
func (n *Node) RestoreSnapshot(ctx context.Context, r io.Reader) (fencing.Token, error) {
	info, state, err := readSnapshot(r)
	if err != nil {
		return 0, fmt.Errorf("restore snapshot: %w", err)
	}
	n.leadMu.Lock()
	led := n.retire() // from here on nothing is proposed, granted or renewed
	n.leadMu.Unlock()
	if !led {
		return 0, n.notLeader()
	}
	if _, err := n.committer.commit(ctx, nil, nil); err != nil { // operations in progress have ended
		n.takeOver()
		return 0, fmt.Errorf("restore snapshot: %w", err)
	}
	var p present
	n.fsm.Read(func(m *machine.Machine) { p = present{m.Present(), m.Count().Holders} })
	state, floor, err := startOver(state, p.Present, n.config.Clock.Now().Time())
	if err != nil {
		n.takeOver()
		return 0, fmt.Errorf("restore snapshot: %w", err)
	}
	meta := &raft.SnapshotMeta{Version: 1, Index: info.Index, Term: info.Term, Size: int64(len(state))}
	if err := n.replaceState(ctx, meta, state); err != nil {
		return 0, fmt.Errorf("restore snapshot: %w", err)
	}
	if n.config.Hooks.Restored != nil {
		n.config.Hooks.Restored(p.leases)
	}
	n.logger.Warn("restored a snapshot; all sessions have ended, and later tokens are above the floor", "index",
		info.Index, "token", info.LastToken, "present", p.LastToken, "floor", floor)
	return floor, nil
}

// replaceState makes the Raft library install a state, and serves again when it is done, even
// if the caller does not wait: the machine must not be replaced during a leadership. The
// library first replaces the state of this node, then that of the others. Its errors do not
// say which of the two failed, not even a loss of leadership. So the outcome of any error is
// unknown.
func (n *Node) replaceState(ctx context.Context, meta *raft.SnapshotMeta, state []byte) error {
	err := n.wait(ctx, futureFunc(func() error {
		defer n.takeOver()
		return n.raft.Restore(meta, bytes.NewReader(state), 0)
	}))
	if err == nil || errors.Is(err, engine.ErrUncertain) {
		return err
	}
	return fmt.Errorf("%w: %w; check the token floor of the next leader before you restore again", engine.ErrUncertain,
		err)
}

// present describes the state that a snapshot replaces.
type present struct {
	machine.Present
	leases int
}

// startOver changes a restored state as [machine.Machine.StartOver] does.
func startOver(state []byte, p machine.Present, now time.Time) ([]byte, fencing.Token, error) {
	if p.NextVersion != 0 {
		return nil, 0, fmt.Errorf("%w: the Redis fleet is being changed; wait for the change, or cancel it with 'leased "+
			"redis fleet set' of the old fleet", engine.ErrUnavailable)
	}
	chain, m, err := replica.DecodeState(state)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	result := m.StartOver(p, now.Unix())
	if result.Code != machine.Done {
		return nil, 0, fmt.Errorf("raise the token floor: %s", result.Code)
	}
	return replica.EncodeState(chain, m), result.Token, nil
}

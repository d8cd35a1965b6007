package admin

import (
	"bytes"
	"errors"
	"fmt"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// chunkSize is the size of one part of a file.
const chunkSize = 1 << 20

// SaveSnapshot sends the state of this member.
func (s *Service) SaveSnapshot(_ *pb.SaveSnapshotRequest, stream pb.ClusterService_SaveSnapshotServer) error {
	_, err := s.Router.Node.SaveSnapshot(stream.Context(), chunkWriter(func(data []byte, left int) error {
		return stream.Send(&pb.Chunk{Data: data, Left: int64(left)})
	}))
	return err
}

// InspectSnapshot checks a snapshot and describes it.
func (s *Service) InspectSnapshot(stream pb.ClusterService_InspectSnapshotServer) error {
	info, err := raftstore.InspectSnapshot(&chunkReader{recv: stream.Recv})
	if err != nil {
		return snapshotError(err)
	}
	return stream.SendAndClose(SnapshotInfo(info))
}

// SnapshotInfo returns the message that describes a snapshot.
func SnapshotInfo(info raftstore.SnapshotInfo) *pb.SnapshotInfo {
	return &pb.SnapshotInfo{Index: info.Index, Term: info.Term, Size: info.Size, Sha256: info.SHA256,
		ChainIndex: info.ChainIndex, ChainHash: info.ChainHash,
		LastToken: uint64(info.LastToken), Generation: info.Generation, Sessions: int64(info.Counts.Sessions),
		Locks: int64(info.Counts.Locks), Holders: int64(info.Counts.Holders), Waiters: int64(info.Counts.Waiters)}
}

// RestoreSnapshot replaces the state of the cluster.
func (s *Service) RestoreSnapshot(stream pb.ClusterService_RestoreSnapshotServer) error {
	if err := s.Router.RequireLeader(); err != nil { // before it reads the file
		return err
	}
	floor, err := s.Router.Node.RestoreSnapshot(stream.Context(), &chunkReader{recv: stream.Recv})
	if err != nil {
		return snapshotError(err)
	}
	return stream.SendAndClose(&pb.RestoreSnapshotResponse{Floor: uint64(floor)})
}

func snapshotError(err error) error {
	if errors.Is(err, raftstore.ErrSnapshot) {
		return fmt.Errorf("%w: %w", engine.ErrInvalid, err)
	}
	return err
}

// chunkWriter writes a file in parts, with the number of bytes that follow.
type chunkWriter func(data []byte, left int) error

func (w chunkWriter) Write(data []byte) (int, error) {
	sent := 0
	for sent < len(data) {
		part := data[sent:min(sent+chunkSize, len(data))]
		if err := w(bytes.Clone(part), len(data)-sent-len(part)); err != nil {
			return sent, err
		}
		sent += len(part)
	}
	return sent, nil
}

// chunkReader reads a file in parts.
type chunkReader struct {
	recv func() (*pb.Chunk, error)
	rest []byte
}

func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		chunk, err := r.recv()
		if err != nil {
			return 0, err
		}
		r.rest = chunk.Data
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

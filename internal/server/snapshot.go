package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// chunkSize is the size of one part of a file.
const chunkSize = 1 << 20

// SaveSnapshot sends the state of this member.
func (a *admin) SaveSnapshot(_ *pb.SaveSnapshotRequest, server pb.ClusterService_SaveSnapshotServer) error {
	_, err := a.router.node.SaveSnapshot(server.Context(), chunkWriter(func(data []byte) error {
		return server.Send(&pb.Chunk{Data: data})
	}))
	return err
}

// InspectSnapshot checks a snapshot.
func (a *admin) InspectSnapshot(server pb.ClusterService_InspectSnapshotServer) error {
	info, err := a.inspectSnapshot(&chunkReader{recv: server.Recv})
	if err != nil {
		return err
	}
	return server.SendAndClose(info)
}

func (a *admin) inspectSnapshot(r io.Reader) (*pb.SnapshotInfo, error) {
	info, err := raftstore.InspectSnapshot(r)
	if err != nil {
		return nil, badSnapshot(err)
	}
	return &pb.SnapshotInfo{Index: info.Index, Term: info.Term, Size: info.Size, Sha256: info.SHA256, ChainIndex: info.ChainIndex,
		ChainHash: info.ChainHash, LastToken: uint64(info.LastToken), Generation: info.Generation, Sessions: int64(info.Counts.Sessions),
		Locks: int64(info.Counts.Locks), Holders: int64(info.Counts.Holders), Waiters: int64(info.Counts.Waiters)}, nil
}

// RestoreSnapshot replaces the state of the cluster.
func (a *admin) RestoreSnapshot(server pb.ClusterService_RestoreSnapshotServer) error {
	response, err := a.restoreSnapshot(server.Context(), &chunkReader{recv: server.Recv})
	if err != nil {
		return err
	}
	return server.SendAndClose(response)
}

func (a *admin) restoreSnapshot(ctx context.Context, r io.Reader) (*pb.RestoreSnapshotResponse, error) {
	floor, err := a.router.node.RestoreSnapshot(ctx, r)
	if err != nil {
		return nil, badSnapshot(err)
	}
	return &pb.RestoreSnapshotResponse{Floor: uint64(floor)}, nil
}

func badSnapshot(err error) error {
	if errors.Is(err, raftstore.ErrSnapshot) {
		return fmt.Errorf("%w: %w", engine.ErrInvalid, err)
	}
	return err
}

// chunkWriter writes a file in parts.
type chunkWriter func(data []byte) error

// Write sends data.
func (w chunkWriter) Write(data []byte) (int, error) {
	sent := 0
	for sent < len(data) {
		part := data[sent:min(sent+chunkSize, len(data))]
		if err := w(bytes.Clone(part)); err != nil {
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

// Read gives the next bytes.
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

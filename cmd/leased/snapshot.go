package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/progress"
	"github.com/leased-project/leased/internal/server/admin"
	"github.com/leased-project/leased/raftstore"
)

// chunkSize is the number of bytes of a file in one message.
const chunkSize = 1 << 20

func setUpSnapshotSave(c *cobra.Command) {
	c.Args = exactly(1, "a file name")
	a, o := addAccess(c), addOutput(c)
	c.RunE = interruptible(func(c *cobra.Command, args []string) error {
		if _, err := os.Lstat(args[0]); err == nil {
			return usageError(fmt.Errorf("%s already exists; give a new file name", args[0]))
		}
		// Under another name until it is complete and on disk.
		file, err := os.CreateTemp(filepath.Dir(args[0]), ".snapshot-*")
		if err != nil {
			return fmt.Errorf("save snapshot: %w", err)
		}
		defer os.Remove(file.Name())
		defer file.Close()
		line := progress.New(os.Stderr, time.Now)
		err = a.call(c.Context(), func(service api) error {
			stream, err := service.SaveSnapshot(c.Context(), &pb.SaveSnapshotRequest{})
			if err != nil {
				return err
			}
			return receiveFile(stream, file, line)
		})
		line.End()
		if err != nil {
			return err
		}
		return keepSnapshot(c, o, file, args[0])
	})
}

// receiveFile writes the chunks of a snapshot to a file.
func receiveFile(stream grpc.ServerStreamingClient[pb.Chunk], file io.Writer, line *progress.Line) error {
	shown := &transfer{line: line, what: "saving the snapshot"}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		shown.Total = shown.Done + int64(len(chunk.Data)) + chunk.Left
		if _, err := io.MultiWriter(file, shown).Write(chunk.Data); err != nil {
			return err
		}
	}
}

// keepSnapshot checks the received file and renames it.
func keepSnapshot(c *cobra.Command, o *output, file *os.File, name string) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	info, err := raftstore.InspectSnapshot(file)
	if err != nil {
		return fmt.Errorf("save snapshot: the received data is damaged, try again: %w", err)
	}
	if err := settings.Commit(file, name); err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	return o.say(c, admin.SnapshotInfo(info), nil, "saved %s: log index %d, last token %d, %d locks", name, info.Index,
		info.LastToken, info.Counts.Locks)
}

func setUpSnapshotInspect(c *cobra.Command) {
	c.Args = exactly(1, "a file name")
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		file, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer file.Close()
		line := progress.New(os.Stderr, time.Now)
		info, err := raftstore.InspectSnapshot(showRead(file, line, "reading the snapshot"))
		line.End()
		if err != nil {
			return err
		}
		m := admin.SnapshotInfo(info)
		return o.print(c, m, func(t *tabwriter.Writer) {
			row(t, "log index", m.Index)
			row(t, "term", m.Term)
			row(t, "last token", m.LastToken)
			row(t, "locks", m.Locks)
			row(t, "holders", m.Holders)
			row(t, "waiters", m.Waiters)
			row(t, "sessions", m.Sessions)
			row(t, "chain", fmt.Sprintf("%d %s", m.ChainIndex, m.ChainHash))
			row(t, "bytes", m.Size)
			row(t, "sha256", m.Sha256)
		})
	}
}

func setUpSnapshotRestore(c *cobra.Command) {
	var yes bool
	c.Args = exactly(1, "a file name")
	a, o := addAccess(c), addOutput(c)
	c.Flags().BoolVar(&yes, "yes", false, "confirm that the state of the whole cluster is to be replaced")
	c.RunE = func(c *cobra.Command, args []string) error {
		if !yes {
			return usageError(fmt.Errorf("this replaces the state of the whole cluster with %s; confirm with --yes", args[0]))
		}
		return a.call(c.Context(), func(service api) error {
			stream, err := service.RestoreSnapshot(c.Context())
			if err != nil {
				return err
			}
			line := progress.New(os.Stderr, time.Now)
			defer line.End()
			if err := sendFile(stream, args[0], line); err != nil {
				return err
			}
			line.Show("the leader restores the snapshot")
			got, err := stream.CloseAndRecv()
			line.End()
			return o.say(c, got, err, "restored %s; later tokens are above %d", args[0], got.GetFloor())
		})
	}
}

func sendFile(stream grpc.ClientStreamingClient[pb.Chunk, pb.RestoreSnapshotResponse], name string,
	line *progress.Line) error {
	opened, err := os.Open(name)
	if err != nil {
		return err
	}
	defer opened.Close()
	_, err = io.CopyBuffer(chunks{stream}, showRead(opened, line, "sending the snapshot"), make([]byte, chunkSize))
	if errors.Is(err, io.EOF) {
		return nil // the response has the reason
	}
	return err
}

// chunks sends what is written to it.
type chunks struct {
	stream grpc.ClientStreamingClient[pb.Chunk, pb.RestoreSnapshotResponse]
}

// Write sends a chunk. It returns io.EOF if the service has responded already.
func (c chunks) Write(data []byte) (int, error) {
	return len(data), c.stream.Send(&pb.Chunk{Data: data})
}

// transfer shows how much of a file was written to it.
type transfer struct {
	line *progress.Line
	what string
	progress.Work
}

// Write counts data.
func (t *transfer) Write(data []byte) (int, error) {
	t.Done, t.Elapsed = t.Done+int64(len(data)), t.line.Elapsed()
	t.line.Show(t.what + ": " + t.Bytes())
	return len(data), nil
}

// showRead returns a reader of a file that shows how much was read.
func showRead(file *os.File, line *progress.Line, what string) io.Reader {
	shown := &transfer{line: line, what: what}
	if info, err := file.Stat(); err == nil {
		shown.Total = info.Size() // 0 if the file is a pipe
	}
	return io.TeeReader(file, shown)
}

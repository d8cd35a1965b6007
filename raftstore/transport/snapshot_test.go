package transport

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// pipeStream is a raft.StreamLayer that connects to one peer, through a pipe.
type pipeStream struct {
	*stream
	conn net.Conn
}

func (s pipeStream) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	return steadyConn{s.track(s.conn, "n2")}, nil
}

func (s pipeStream) Close() error {
	close(s.stopped)
	return s.conn.Close()
}

// newPipe returns a transport of the Raft library that sends to the other end of a pipe.
func newPipe(t *testing.T) (sender *raft.NetworkTransport, receiver *stream, there net.Conn) {
	t.Helper()
	unserved := func() *stream {
		return &stream{config: Config{Logger: hclog.NewNullLogger()}, advertised: namedAddr("n:1"),
			requests: make(chan raft.RPC), stopped: make(chan struct{}), open: map[*peerConn]struct{}{}}
	}
	here, there := net.Pipe()
	sender = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: pipeStream{unserved(), here},
		Logger: hclog.NewNullLogger(), MaxRPCsInFlight: 1, Timeout: rpcTimeout})
	t.Cleanup(func() {
		sender.Close()
		there.Close()
	})
	return sender, unserved(), there
}

// snapshotSize takes ten minutes at the least rate that the Raft library accepts.
const snapshotSize = 60 * raft.DefaultTimeoutScale

// A leader that falls silent in the middle of a snapshot does not keep the main loop of a
// follower, which reads the snapshot, from an election.
func TestSilentSenderOfASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sender, receiver, there := newPipe(t)
		go receiver.receive(receiver.track(there, ""))
		data, feed := io.Pipe()
		defer feed.Close()
		go func() {
			request := &raft.InstallSnapshotRequest{SnapshotVersion: 1, Size: snapshotSize}
			_ = sender.InstallSnapshot("n2", "", request, &raft.InstallSnapshotResponse{}, data)
		}()
		rpc := <-receiver.requests
		go func() {
			for range 3 { // slow, but not silent
				<-time.After(readTimeout - time.Millisecond)
				_, _ = io.CopyN(feed, strings.NewReader(strings.Repeat("x", snapshotSize)), 2*raft.DefaultTimeoutScale)
			}
		}()
		began := time.Now()
		read, err := io.Copy(io.Discard, rpc.Reader)
		require.ErrorIs(t, err, errSilent)
		require.GreaterOrEqual(t, read, int64(5*raft.DefaultTimeoutScale))
		require.LessOrEqual(t, time.Since(began), 4*readTimeout)
		began = time.Now()
		_, err = io.Copy(io.Discard, rpc.Reader) // as the Raft library does then
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		rpc.Respond(&raft.InstallSnapshotResponse{}, nil)
	})
}

// A follower that stops reading a snapshot does not hold the leader until the deadline of the
// whole snapshot. It may take its time to answer.
func TestSilentReceiverOfASnapshot(t *testing.T) {
	install := func(t *testing.T, sender *raft.NetworkTransport) (time.Duration, error) {
		began := time.Now()
		request := &raft.InstallSnapshotRequest{SnapshotVersion: 1, Size: snapshotSize}
		err := sender.InstallSnapshot("n2", "", request, &raft.InstallSnapshotResponse{},
			strings.NewReader(strings.Repeat("x", snapshotSize)))
		return time.Since(began), err
	}
	synctest.Test(t, func(t *testing.T) {
		sender, _, there := newPipe(t)
		go func() { _, _ = io.CopyN(io.Discard, there, snapshotSize/2) }()
		took, err := install(t, sender)
		require.ErrorIs(t, err, errSilent)
		require.Equal(t, writeTimeout, took)
	})
	synctest.Test(t, func(t *testing.T) {
		sender, receiver, there := newPipe(t)
		go receiver.receive(receiver.track(there, ""))
		go func() {
			rpc := <-receiver.requests
			_, _ = io.Copy(io.Discard, rpc.Reader)
			<-time.After(time.Minute)
			rpc.Respond(&raft.InstallSnapshotResponse{}, nil)
		}()
		took, err := install(t, sender)
		require.NoError(t, err)
		require.Equal(t, time.Minute, took)
	})
}

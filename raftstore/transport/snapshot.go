package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// How long one step of the transfer of a snapshot may take. The Raft library only bounds the whole
// transfer on the side that sends, by the size of the snapshot.
const (
	readTimeout  = 2 * time.Second
	writeTimeout = 10 * time.Second // the disk of the peer may be slow
)

// errSilent reports a step that took longer.
var errSilent = errors.New("the peer is silent: nothing was transferred")

// limited calls step, and closes the connection if it takes longer than limit.
func (p *peerConn) limited(limit time.Duration, step func([]byte) (int, error), b []byte) (int, error) {
	timer := time.AfterFunc(limit, func() { p.Close() })
	n, err := step(b)
	if !timer.Stop() {
		return n, fmt.Errorf("%w for %v", errSilent, limit)
	}
	return n, err
}

// steadyReader reads a snapshot that a peer sends. The main loop of the Raft library reads it: a
// leader that has fallen silent must not keep this node from an election.
type steadyReader struct {
	conn *peerConn
	in   io.Reader
}

// Read returns an error if the peer sends nothing within readTimeout.
func (r steadyReader) Read(b []byte) (int, error) { return r.conn.limited(readTimeout, r.in.Read, b) }

// steadyConn is a connection on which the Raft library sends a snapshot or one of its rare requests.
type steadyConn struct{ *peerConn }

// Write returns an error if the peer accepts less than connBuffer bytes within writeTimeout.
func (c steadyConn) Write(b []byte) (written int, err error) {
	for piece := range slices.Chunk(b, connBuffer) {
		n, err := c.limited(writeTimeout, c.peerConn.Write, piece)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// Dial connects to a member for the Raft library.
func (s *stream) Dial(target raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	p, err := s.dial(target, timeout)
	if err != nil {
		return nil, err
	}
	return steadyConn{p}, nil
}

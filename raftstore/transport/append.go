package transport

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// connBuffer is the size of the read buffer of a connection for AppendEntries.
const connBuffer = 16 << 10

// appender sends AppendEntries requests on connections of their own, with a codec of their
// own. Nearly all messages between members are of this kind, and the codec of the Raft
// library is slow: it finds fields by reflection and by name.
type appender struct {
	dial func(to member) (net.Conn, error)

	mu   sync.Mutex
	idle map[member][]*appendConn // at most maxIdle for each member
}

// member is the target of a call.
type member struct {
	id      raft.ServerID
	address raft.ServerAddress
}

// appendConn is a connection to a member, used by one call at a time.
type appendConn struct {
	net.Conn
	in    *bufio.Reader
	out   []byte // the next request; on a new connection it follows the format and its version
	size  [4]byte
	limit *time.Timer // closes the connection during a call that takes longer than rpcTimeout
}

func newAppender(dial func(to member) (net.Conn, error)) *appender {
	return &appender{dial: dial, idle: map[member][]*appendConn{}}
}

// call sends a request and waits for the response.
func (a *appender) call(to member, request *raft.AppendEntriesRequest, response *raft.AppendEntriesResponse) error {
	c, err := a.connection(to)
	if err != nil {
		return err
	}
	answer, err := c.call(request, response)
	if err != nil {
		c.Close()
		return fmt.Errorf("append entries to member %s: %w", to.id, err)
	}
	a.keep(to, c)
	return answer
}

// connection returns an idle connection, or a new one.
func (a *appender) connection(to member) (*appendConn, error) {
	a.mu.Lock()
	if idle := a.idle[to]; len(idle) > 0 {
		c := idle[len(idle)-1]
		a.idle[to] = idle[:len(idle)-1]
		a.mu.Unlock()
		return c, nil
	}
	a.mu.Unlock()
	conn, err := a.dial(to)
	if err != nil {
		return nil, err
	}
	limit := time.AfterFunc(rpcTimeout, func() { conn.Close() })
	limit.Stop()
	return &appendConn{Conn: conn, in: bufio.NewReaderSize(conn, connBuffer), out: []byte{appendFormat, AppendVersion},
		limit: limit}, nil
}

// keep makes a connection available to the next call.
func (a *appender) keep(to member, c *appendConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.idle[to]) < maxIdle {
		a.idle[to] = append(a.idle[to], c)
		return
	}
	c.Close()
}

// call sends a request and waits for the response. answer is the error of the peer; err means
// that the connection is not usable any more.
func (c *appendConn) call(request *raft.AppendEntriesRequest, response *raft.AppendEntriesResponse) (answer,
	err error) {
	c.limit.Reset(rpcTimeout)
	body, err := c.exchange(request)
	if !c.limit.Stop() {
		return nil, fmt.Errorf("no answer within %v", rpcTimeout)
	}
	if err != nil {
		return nil, err
	}
	return decodeResponse(body, response)
}

// exchange sends a request and returns the fields of the response.
func (c *appendConn) exchange(request *raft.AppendEntriesRequest) ([]byte, error) {
	c.out = appendRequest(c.out, request)
	_, err := c.Write(c.out)
	c.out = reusable(c.out)
	if err != nil {
		return nil, err
	}
	return readMessage(c.in, &c.size)
}

// reusable returns a buffer for the next message. It does not keep large ones.
func reusable(b []byte) []byte {
	if cap(b) > readStep {
		return nil
	}
	return b[:0]
}

// receiveAppends passes on the AppendEntries requests of an incoming connection, one after the
// other, until it is closed.
func (s *stream) receiveAppends(p *peerConn, in io.Reader) error {
	var size [4]byte
	var out []byte
	responses := make(chan raft.RPCResponse, 1) // each request has one response
	sender := ""
	defer func() { s.left(sender) }()
	for {
		body, err := readMessage(in, &size)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		request, err := decodeRequest(body)
		if err != nil {
			_, _ = p.Write(appendResponse(nil, nil, err)) // so that the peer logs it, too
			return err
		}
		if err := s.deliver(p, raft.RPC{Command: request, RespChan: responses}); err != nil {
			return err
		}
		if sender == "" {
			sender = string(request.RPCHeader.ID)
			s.arrived(sender)
		}
		var response raft.RPCResponse
		select {
		case response = <-responses:
		case <-p.closed:
			return nil
		}
		result, ok := response.Response.(*raft.AppendEntriesResponse)
		if response.Error == nil && (!ok || result == nil) {
			return fmt.Errorf("the node answered a request for entries with a %T", response.Response)
		}
		out = appendResponse(reusable(out), result, response.Error)
		if _, err := p.Write(out); err != nil {
			return nil // the peer has closed the connection
		}
	}
}

// arrived counts a connection on which a member sent AppendEntries.
func (s *stream) arrived(sender string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.senders[sender]++
}

// left is called when a connection for AppendEntries has ended. sender is empty if none has
// arrived.
func (s *stream) left(sender string) {
	s.mu.Lock()
	s.senders[sender]--
	last := s.senders[sender] <= 0
	if last {
		delete(s.senders, sender)
	}
	s.mu.Unlock()
	if last && sender != "" && s.config.Left != nil {
		s.config.Left(sender)
	}
}

// receives reports whether a connection is open on which a member sent AppendEntries.
func (s *stream) receives(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.senders[id] > 0
}

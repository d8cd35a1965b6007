package server

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeConn is a connection from a port.
type fakeConn struct {
	net.Conn
	port   int
	closed int
}

func (c *fakeConn) Close() error         { c.closed++; return nil }
func (c *fakeConn) RemoteAddr() net.Addr { return address(strconv.Itoa(c.port)) }

type address string

func (address) Network() string  { return "test" }
func (a address) String() string { return string(a) }

// Connections without a protocol give way to later ones, others do not.
func TestOldestUndetectedGivesWay(t *testing.T) {
	all := conns{most: 2 * maxUndetected, open: map[string]*conn{}}
	fakes := make([]*fakeConn, maxUndetected+2)
	for i := range fakes {
		fakes[i] = &fakeConn{port: i}
		added := all.add(fakes[i])
		require.NotNil(t, added)
		if i == 0 {
			all.mu.Lock()
			all.detected(added)
			all.mu.Unlock()
		}
	}
	require.Zero(t, fakes[0].closed, "its protocol is known")
	require.Equal(t, 1, fakes[1].closed)
	require.Zero(t, fakes[2].closed)
	require.Len(t, all.open, maxUndetected+1)
	require.Len(t, all.undetected, maxUndetected)
}

// Thousands of clients may begin at once, as after a failover.
func TestManyConnectionsMayBegin(t *testing.T) {
	all := conns{most: 20_000, open: map[string]*conn{}}
	for i := range 10_000 {
		require.NotNil(t, all.add(&fakeConn{port: i}))
	}
	require.Len(t, all.open, 10_000)
	require.NotNil(t, all.add(&fakeConn{port: 10_000}))
	require.Len(t, all.open, 10_000)
}

func TestMostConnections(t *testing.T) {
	all := conns{most: 2, open: map[string]*conn{}}
	first, second := all.add(&fakeConn{port: 1}), all.add(&fakeConn{port: 2})
	require.NotNil(t, second)
	refused := &fakeConn{port: 3}
	require.Nil(t, all.add(refused))
	require.Equal(t, 1, refused.closed)
	require.NoError(t, first.Close())
	require.NoError(t, first.Close())
	require.NotNil(t, all.add(&fakeConn{port: 4}))
}

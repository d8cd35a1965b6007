package probes

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A listener with too many connections closes the oldest, and keeps the others.
func TestOldestConnectionIsClosed(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	n := &newest{Listener: listener}
	var clients, servers []net.Conn
	for range maxConnections + 1 {
		client, err := net.Dial("tcp", listener.Addr().String())
		require.NoError(t, err)
		defer client.Close()
		server, err := n.Accept()
		require.NoError(t, err)
		clients, servers = append(clients, client), append(servers, server)
	}
	require.Len(t, n.open, maxConnections)
	require.NoError(t, clients[0].SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = clients[0].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	for i := range maxConnections {
		_, err = servers[i+1].Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, servers[i+1].Close())
	}
	require.Empty(t, n.open)
}

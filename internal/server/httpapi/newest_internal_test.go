package httpapi

import (
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// With too many connections the oldest is closed, and the others are kept. Those that have
// ended do not count.
func TestOldestConnectionIsClosed(t *testing.T) {
	t.Parallel()
	var n newest
	var clients []net.Conn
	ended, _ := net.Pipe()
	n.track(ended, http.StateNew)
	n.track(ended, http.StateClosed)
	for range maxConnections + 1 {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		require.NoError(t, client.SetReadDeadline(time.Now()))
		n.track(server, http.StateNew)
		clients = append(clients, client)
	}
	_, err := clients[0].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	for i, client := range clients[1:] {
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "connection %d is closed", i+1)
	}
}

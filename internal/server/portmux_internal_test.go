package server

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pieces is a connection that receives bytes in pieces of a size.
type pieces struct {
	net.Conn
	from *bytes.Reader
	size int
}

// Read returns the next piece.
func (p *pieces) Read(b []byte) (int, error) {
	return p.from.Read(b[:min(len(b), p.size)])
}

// FuzzPreface checks that the protocol of a connection does not depend on how its
// bytes arrive, and that no byte is lost.
func FuzzPreface(f *testing.F) {
	for _, text := range []string{"", "P", preface, preface + "rest", preface[:20] + "X", "POST / HTTP/1.1\r\n\r\n",
		"PRI * HTTP/1.1\r\n\r\n"} {
		f.Add([]byte(text), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		conn := &pieces{from: bytes.NewReader(data), size: int(size)%len(preface) + 1}
		first, err := readPreface(conn)
		if err != nil { // the connection ended too early
			require.True(t, strings.HasPrefix(preface, string(data)))
			return
		}
		require.Equal(t, bytes.HasPrefix(data, []byte(preface)), string(first) == preface)
		all, err := io.ReadAll(&prefixedConn{Conn: conn, prefix: first})
		require.NoError(t, err)
		require.Equal(t, data, all)
	})
}

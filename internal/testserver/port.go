package testserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The ports that FreeAddr returns are below the range of ephemeral ports: the kernel
// could assign one of those to a connection before the server listens on it, or while
// a killed server restarts.
const (
	firstPort = 20_000
	lastPort  = 31_999
	// blockSize is how far apart processes start to look, so tests of several
	// packages seldom choose the same port.
	blockSize = 100
)

var (
	portsReturned atomic.Int64
	// reserved has a UDP socket for each port that this process has returned, until the
	// process ends. Other processes that look for a port skip it, even while no server
	// listens on it.
	reserved sync.Map
)

// FreeAddr returns a loopback address that no process listens on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, _, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// freeAddr returns a loopback address that no process listens on, and its port. It
// returns each address once, as long as there are others.
func freeAddr() (addr, port string, err error) {
	const ports = lastPort - firstPort + 1
	start := os.Getpid() * blockSize
	for range ports {
		port = strconv.Itoa(firstPort + (start+int(portsReturned.Add(1)))%ports)
		addr = net.JoinHostPort("127.0.0.1", port)
		reservation, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		// A listener that tries the port would stay open in a process that is forked meanwhile, until it executes
		// its program. On a busy machine the server may be faster.
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if errors.Is(err, syscall.ECONNREFUSED) {
			reserved.Store(port, reservation)
			return addr, port, nil
		}
		if err == nil {
			conn.Close()
		}
		reservation.Close()
	}
	return "", "", fmt.Errorf("find a free port: all ports from %d to %d are in use", firstPort, lastPort)
}

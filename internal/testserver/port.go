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

// The ports that FreeAddresses returns are below the range of ephemeral ports: the kernel
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
	// reserved has a UDP socket for each address that this process has returned, until the
	// process ends. Other processes that look for one skip it, even while no server
	// listens on it.
	reserved sync.Map
)

// FreeAddr returns a loopback address that no process listens on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addresses, err := FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return addresses[0]
}

// FreeAddresses returns n loopback addresses that no process listens on. It returns each address once, as long as
// there are others.
func FreeAddresses(n int) (addresses []string, err error) {
	const ports = lastPort - firstPort + 1
	start := os.Getpid() * blockSize
	for range ports {
		if len(addresses) == n {
			return addresses, nil
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+(start+int(portsReturned.Add(1)))%ports))
		reservation, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		// A listener that tries the port would stay open in a process that is forked meanwhile, until it executes
		// its program. On a busy machine the server may be faster.
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if errors.Is(err, syscall.ECONNREFUSED) {
			reserved.Store(addr, reservation)
			addresses = append(addresses, addr)
			continue
		}
		if err == nil {
			conn.Close()
		}
		reservation.Close()
	}
	return nil, fmt.Errorf("find a free port: all ports from %d to %d are in use", firstPort, lastPort)
}

// ReleaseUDP gives the UDP port of an address to a server that listens on it.
func ReleaseUDP(addr string) {
	if reservation, found := reserved.LoadAndDelete(addr); found {
		reservation.(net.PacketConn).Close()
	}
}

// portOf returns the port of an address.
func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr) // FreeAddresses made it
	return port
}

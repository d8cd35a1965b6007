package httpapi

import (
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/internal/server/metrics"
)

const (
	// readTimeout bounds the time until a request is read, and writeTimeout the time
	// until it is answered. Readiness may wait two seconds for the Redis nodes.
	readTimeout  = 2 * time.Second
	writeTimeout = 5 * time.Second
	// maxHeader bounds the headers of a request. net/http adds 4 KiB to it.
	maxHeader = 1 << 10
	// maxConnections bounds the open connections.
	maxConnections = 64
)

// ProbeServer returns a server of the probes and the metrics, and nothing else, for a separate
// port: plain HTTP without a client certificate. Everyone may connect to it, so the time and
// size of a request and the number of connections are limited, and a connection serves one request.
func ProbeServer(probes Probes, scrapes http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET "+metrics.Path, scrapes)
	mux.Handle("/", probes)
	s := &http.Server{Handler: mux,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeader, ConnState: (&newest{}).track,
		ErrorLog: log.New(io.Discard, "", 0)} // callers make these errors
	s.SetKeepAlivesEnabled(false)
	return s
}

// newest keeps the newest maxConnections connections. It closes the oldest for another one: a
// supervisor that connects now is served even if somebody holds many idle connections.
type newest struct {
	mu   sync.Mutex
	open []net.Conn // oldest first
}

// track is the ConnState hook of an http.Server.
func (n *newest) track(c net.Conn, state http.ConnState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(n.open) == maxConnections {
			_ = n.open[0].Close()
			n.open = n.open[1:]
		}
		n.open = append(n.open, c)
	case http.StateClosed:
		n.open = slices.DeleteFunc(n.open, func(other net.Conn) bool { return other == c })
	}
}

package httpapi

import (
	"errors"
	"fmt"
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

// ProbeListener serves the probes and the metrics, and nothing else, on a separate port: plain
// HTTP without a client certificate. Everyone may connect to it, so the time and
// size of a request and the number of connections are limited, and a connection serves one request.
type ProbeListener struct {
	net.Listener
	http *http.Server
}

// ListenProbes listens on an address. Serve serves the probes and the metrics, Close ends it.
func ListenProbes(address string, probes Probes, scrapes http.Handler) (*ProbeListener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for probes on %s: %w", address, err)
	}
	l := &ProbeListener{Listener: listener, http: &http.Server{Handler: withMetrics(probes, scrapes),
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeader, ConnState: (&newest{}).track,
		ErrorLog: log.New(io.Discard, "", 0)}} // callers make these errors
	l.http.SetKeepAlivesEnabled(false)
	return l, nil
}

// withMetrics returns a handler of the probes and of scrapes.
func withMetrics(probes, scrapes http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == metrics.Path && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			scrapes.ServeHTTP(w, r)
			return
		}
		probes.ServeHTTP(w, r)
	})
}

// Serve serves the probes until Close, and returns nil then.
func (l *ProbeListener) Serve() error {
	if err := l.http.Serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve probes: %w", err)
	}
	return nil
}

// Close closes the port and all connections.
func (l *ProbeListener) Close() error {
	return errors.Join(l.http.Close(), ignoreClosed(l.Listener.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
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

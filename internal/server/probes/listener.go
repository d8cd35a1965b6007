package probes

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

// Listener serves the probes and the metrics, and nothing else, on a port of its own:
// plain HTTP without a client certificate. Everyone may connect to it, so a request has little
// time and space, a connection serves one request, and the number of connections is
// bounded.
type Listener struct {
	net.Listener
	http *http.Server
}

// Listen listens on an address. Serve serves the probes and the metrics, Close ends it.
func Listen(address string, ready Ready, scrapes http.Handler) (*Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for probes on %s: %w", address, err)
	}
	l := &Listener{Listener: &newest{Listener: listener},
		http: &http.Server{Handler: withMetrics(NewHandler(ready), scrapes), ReadTimeout: readTimeout, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeader,
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
func (l *Listener) Serve() error {
	if err := l.http.Serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve probes: %w", err)
	}
	return nil
}

// Close closes the port and all connections.
func (l *Listener) Close() error {
	return errors.Join(l.http.Close(), ignoreClosed(l.Listener.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// newest is a listener that keeps the newest maxConnections connections. It closes the
// oldest to accept another: a supervisor that connects now is served even if somebody
// holds many idle connections.
type newest struct {
	net.Listener
	mu   sync.Mutex
	open []*connection // oldest first
}

// Accept waits for a connection, and closes the oldest if there are too many.
func (n *newest) Accept() (net.Conn, error) {
	accepted, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: accepted, listener: n}
	n.mu.Lock()
	var oldest *connection
	if len(n.open) == maxConnections {
		oldest = n.open[0]
	}
	n.open = append(n.open, c)
	n.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return c, nil
}

// forget removes a closed connection.
func (n *newest) forget(c *connection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = slices.DeleteFunc(n.open, func(other *connection) bool { return other == c })
}

// connection is a connection that newest counts.
type connection struct {
	net.Conn
	listener *newest
}

// Close closes the connection.
func (c *connection) Close() error {
	c.listener.forget(c)
	return c.Conn.Close()
}

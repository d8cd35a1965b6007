package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/leased-project/leased/internal/server/httpapi"
	"github.com/leased-project/leased/internal/server/tracing"
)

// pprofHeaderTimeout bounds the time until the headers of a request are read. A profile
// itself takes as long as its caller wants.
const pprofHeaderTimeout = 5 * time.Second

// startDiagnostics starts what the settings ask for: traces, and the port of profiles. The
// caller calls stopDiagnostics, also after an error.
func (m *Member) startDiagnostics(version string) (err error) {
	if s := m.settings; s.TraceEndpoint != "" {
		m.tracer, err = tracing.Open(tracing.Config{Endpoint: s.TraceEndpoint, Sample: s.TraceSample, Member: s.ID,
			Version: version, Logger: m.logger})
		if err != nil {
			return fmt.Errorf("trace-endpoint: %w", err)
		}
		m.logger.Info("exporting traces", "endpoint", s.TraceEndpoint, "sample", s.TraceSample)
	}
	return m.serve("profiles", m.settings.PprofListen,
		&http.Server{Handler: pprofHandler(), ReadHeaderTimeout: pprofHeaderTimeout})
}

// serve serves what has a port of its own until stopDiagnostics. An empty address means no port.
func (m *Member) serve(what, address string, s *http.Server) error {
	if address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for %s on %s: %w", what, address, err)
	}
	s.Addr = listener.Addr().String()
	m.ports = append(m.ports, s)
	m.probing.Go(func() {
		if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			m.failed <- fmt.Errorf("serve %s: %w", what, err)
		}
	})
	m.logger.Info("serving "+what, "address", s.Addr)
	return nil
}

// pprofHandler serves the profiles of this process. It refuses requests of pages of other
// sites: the port has no users.
func pprofHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpapi.KnownHost(r.Host) {
			http.Error(w, "use an IP address or localhost", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// stopDiagnostics exports the last spans, and closes the ports of profiles and probes.
func (m *Member) stopDiagnostics() {
	if err := m.tracer.Close(); err != nil {
		m.logger.Warn("lost the last spans", "error", err)
	}
	for _, s := range m.ports {
		_ = s.Close() // nothing is lost
	}
	m.probing.Wait()
}

// ready reports whether the member can serve.
func (m *Member) ready(ctx context.Context) (ready bool, reason string) {
	if s := m.serving.Load(); s != nil {
		return s.Ready(ctx)
	}
	return false, "member " + m.settings.ID + " is starting"
}

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
	if m.settings.PprofListen == "" {
		return nil
	}
	listener, err := net.Listen("tcp", m.settings.PprofListen)
	if err != nil {
		return fmt.Errorf("listen for profiles on %s: %w", m.settings.PprofListen, err)
	}
	m.pprof = &http.Server{Handler: pprofHandler(), ReadHeaderTimeout: pprofHeaderTimeout}
	m.pprofAddress = listener.Addr().String()
	m.probing.Go(func() {
		if err := m.pprof.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			m.failed <- fmt.Errorf("serve profiles: %w", err)
		}
	})
	m.logger.Info("serving profiles", "address", m.pprofAddress)
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
	if m.pprof != nil {
		_ = m.pprof.Close() // nothing is lost
	}
	if err := m.tracer.Close(); err != nil {
		m.logger.Warn("lost the last spans", "error", err)
	}
	if m.probes != nil {
		_ = m.probes.Close() // nothing is lost
	}
	m.probing.Wait()
}

// startProbes serves the probes on their own port, if there is one. It starts before the
// rest of the member, because opening a large data folder takes time.
func (m *Member) startProbes() error {
	if m.settings.ProbeListen == "" {
		return nil
	}
	listener, err := httpapi.ListenProbes(m.settings.ProbeListen, m.ready, m.metrics.Handler())
	if err != nil {
		return err
	}
	m.probes = listener
	m.probing.Go(func() {
		if err := listener.Serve(); err != nil {
			m.failed <- err
		}
	})
	m.logger.Info("serving probes", "address", listener.Addr().String())
	return nil
}

// ready reports whether the member can serve.
func (m *Member) ready(ctx context.Context) (ready bool, reason string) {
	if s := m.serving.Load(); s != nil {
		return s.Ready(ctx)
	}
	return false, "member " + m.settings.ID + " is starting"
}

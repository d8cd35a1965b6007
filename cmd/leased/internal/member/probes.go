package member

import (
	"context"

	"github.com/leased-project/leased/internal/server/httpapi"
)

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

// stopProbes closes the port of the probes.
func (m *Member) stopProbes() {
	if m.probes != nil {
		_ = m.probes.Close() // nothing is lost
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

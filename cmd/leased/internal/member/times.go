package member

import (
	"context"
	"path/filepath"

	"github.com/leased-project/leased/internal/server/history"
	"github.com/leased-project/leased/internal/server/watch"
)

// newHub returns a Hub that knows when the leases of earlier processes were granted. A
// file that cannot be read is replaced, because nothing but the display depends on it.
func (m *Member) newHub() *watch.Hub {
	m.hub = watch.NewHub()
	if err := m.hub.Recorder.Load(m.timesFile()); err != nil {
		m.logger.Warn("the times of earlier grants are unknown", "error", err)
	}
	return m.hub
}

// saveTimes keeps the file of the times of grants up to date.
func (m *Member) saveTimes(ctx context.Context) {
	m.hub.Recorder.KeepSaved(ctx, m.timesFile(), m.logger)
}

func (m *Member) timesFile() string { return filepath.Join(m.settings.Data, history.FileName) }

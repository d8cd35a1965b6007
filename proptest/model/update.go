package model

import (
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// Update raises the TTL of a session, and changes the metadata of a lease.
func (m *Model) Update(s Session, ttl time.Duration, nonce engine.Nonce, metadata map[string]string) Outcome {
	if !m.Open(s) {
		return Outcome{Code: NoSession}
	}
	a := m.live(Attempt{s, nonce})
	switch {
	case nonce != 0 && (a == nil || a.state != holding):
		return Outcome{Code: NotHeld}
	case len(metadata) > 0:
		a.request.Metadata = metadata
	}
	info := m.Sessions[s.ID]
	info.TTL = max(info.TTL, ttl)
	m.Sessions[s.ID] = info
	return Outcome{Code: Done}
}

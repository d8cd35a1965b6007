package remote

import (
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// FirstEfficiencyMember returns the member that the first call in efficiency mode asks, which
// is random.
func (b *Backend) FirstEfficiencyMember() string {
	return b.settings.endpoints[b.efficiency.next%len(b.settings.endpoints)]
}

// Members exports members.
type Members struct{ *members }

// NewMembers returns members with these endpoints.
func NewMembers(endpoints ...string) Members { return Members{newMembers(endpoints)} }

// The methods of members.
func (m Members) Next(now engine.Instant, from int) (string, int) { return m.next(now, from) }
func (m Members) Avoids(now engine.Instant, address string) bool  { return m.avoids(now, address) }
func (m Members) Answered(address string)                         { m.answered(address) }
func (m Members) FellSilent(now engine.Instant, address string)   { m.fellSilent(now, address) }
func (m Members) ConnectTime(now engine.Instant, address string) time.Duration {
	return m.connectTime(now, address)
}
func (m Members) Connected(now, began engine.Instant, address string, err error, left bool) {
	m.connected(now, began, address, err, left)
}

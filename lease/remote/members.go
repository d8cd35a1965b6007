package remote

import (
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// A member that does not accept a connection within minConnect gets more time at each
	// further try, up to maxConnect: with other members to ask, the first try is short.
	minConnect = 500 * time.Millisecond
	maxConnect = 2 * time.Second
	// avoidTime is how long a silent member is not asked again, if there are others. It is
	// longer than an election, so that callers do not follow a redirect to a leader that
	// is paused, and short, because the member may only have been busy.
	avoidTime = time.Second
)

// members decides which member is asked next, and for how long. It remembers which ones
// were silent. All connections of a Backend share it.
type members struct {
	endpoints []string

	mu     sync.Mutex
	silent map[string]silentMember
}

// silentMember is a member that was silent, or did not accept a connection in time.
type silentMember struct {
	until    engine.Instant // it is avoided until then
	connects int            // tries to connect in a row that took too long
}

func newMembers(endpoints []string) *members {
	return &members{endpoints: endpoints, silent: map[string]silentMember{}}
}

// next returns the endpoint to ask: the first one from a position on that is not avoided,
// otherwise the one whose time ends first. It also returns the position after it.
func (m *members) next(now engine.Instant, from int) (address string, after int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var shortest time.Duration
	for i := from; i < from+len(m.endpoints); i++ {
		candidate := m.endpoints[i%len(m.endpoints)]
		left := max(0, now.Until(m.silent[candidate].until))
		if address == "" || left < shortest {
			address, after, shortest = candidate, i+1, left
		}
	}
	return address, after
}

// avoids reports whether a member was silent a moment ago.
func (m *members) avoids(now engine.Instant, address string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Until(m.silent[address].until) > 0
}

// connectTime returns how long to wait for a connection to a member.
func (m *members) connectTime(address string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return min(minConnect<<min(m.silent[address].connects, 10), maxConnect)
}

// fellSilent records that a member sends nothing on its connection.
func (m *members) fellSilent(now engine.Instant, address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.silent[address]
	s.until = now.Add(avoidTime)
	m.silent[address] = s
}

// connected records the outcome of a try to connect. One that ended with its caller counts
// as too slow if it had as much time as others need.
func (m *members) connected(now, began engine.Instant, address string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		delete(m.silent, address)
	case now.Since(began) >= minConnect/2:
		m.silent[address] = silentMember{until: now.Add(avoidTime), connects: m.silent[address].connects + 1}
	}
}

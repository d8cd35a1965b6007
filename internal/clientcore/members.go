package clientcore

import (
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// A member that does not accept a connection within minConnect gets twice the time at
	// the next try, up to maxConnect: with other members to ask, the first try is short.
	minConnect = 500 * time.Millisecond
	maxConnect = 2 * time.Second
	// forgetTime is how long after its last failure a member is tried briefly again, so
	// that one that is down for long does not cost each search maxConnect.
	forgetTime = 30 * time.Second
	// avoidTime is how long a member that failed is not asked again, if there are others.
	// It is longer than an election, because callers must not follow a redirect to a paused
	// leader, and still short, because the member may only have been busy.
	avoidTime = time.Second
)

// Members decides which member is asked next, and for how long. It remembers which ones
// have failed. All connections of a client share it, and all methods may be
// called concurrently.
type Members struct {
	endpoints []string

	mu    sync.Mutex
	known map[string]memberState
}

// memberState is what is remembered of a member.
type memberState struct {
	failed engine.Instant // the last failure; zero if the member has sent a message since
	silent bool           // it failed because it did not answer
	slow   int            // how often minConnect is doubled for the next try to connect
}

// NewMembers returns the members with these addresses.
func NewMembers(endpoints []string) *Members {
	return &Members{endpoints: endpoints, known: map[string]memberState{}}
}

// Next returns the endpoint to ask: the first one from a position on that is not avoided,
// otherwise the one whose failure is the longest ago, so that each gets its turn. It also
// returns the position after it.
func (m *Members) Next(now engine.Instant, from int) (address string, after int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var longest time.Duration
	for i := from; i < from+len(m.endpoints); i++ {
		candidate := m.endpoints[i%len(m.endpoints)]
		age := time.Duration(avoidTime)
		if s := m.known[candidate]; !s.failed.IsZero() {
			age = min(age, now.Since(s.failed))
		}
		if address == "" || age > longest {
			address, after, longest = candidate, i+1, age
		}
	}
	return address, after
}

// Avoids reports whether a member was silent a moment ago.
func (m *Members) Avoids(now engine.Instant, address string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.known[address]
	return s.silent && now.Since(s.failed) < avoidTime
}

// ConnectTime returns how long to wait for a connection to a member.
func (m *Members) ConnectTime(now engine.Instant, address string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.known[address]
	if !s.failed.IsZero() && now.Since(s.failed) >= forgetTime {
		s.slow = 0
		m.known[address] = s
	}
	return min(minConnect<<s.slow, maxConnect)
}

// FellSilent records that a member sends nothing on its connection.
func (m *Members) FellSilent(now engine.Instant, address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[address] = memberState{failed: now, silent: true, slow: m.known[address].slow}
}

// Answered records that a member has sent a message.
func (m *Members) Answered(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[address] = memberState{slow: m.known[address].slow}
}

// Connected records the outcome of a try to connect. A connection alone does not show that
// the member answers: a proxy may have accepted it. The next try gets twice the time that
// this one took. A try that ended with its caller counts as too slow if it had as much time
// as others need, and otherwise says nothing.
func (m *Members) Connected(now, began engine.Instant, address string, err error, left bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, took := m.known[address], now.Since(began)
	switch {
	case err == nil:
		s.slow = 0
		for minConnect<<s.slow < min(2*took, maxConnect) {
			s.slow++
		}
	case took >= minConnect/2:
		s = memberState{failed: now, silent: true, slow: s.slow}
		if minConnect<<s.slow < maxConnect {
			s.slow++
		}
	case !left:
		s = memberState{failed: now, slow: s.slow}
	}
	m.known[address] = s
}

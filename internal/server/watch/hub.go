package watch

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/history"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

const (
	// maxChanged is the number of changed locks that a subscription keeps. Beyond it,
	// the subscriber looks at all locks again.
	maxChanged = 4096
	// maxReasons is the number of reasons after which the Hub drops older ones.
	maxReasons = 4096
	// unknownReason is the event type of a lease whose reason is not known any more.
	unknownReason = "ended"
)

// Hub distributes the events of the Raft machine to watches, and remembers why
// leases ended. It must be the Observer of the node that its Watcher reads.
type Hub struct {
	// Recorder remembers the events. It should also be the Times of the node.
	Recorder *history.Recorder

	watched atomic.Int64 // the number of subscriptions

	mu            sync.Mutex
	subscriptions map[*subscription]bool
	// The reasons of recent leases in correctness mode that ended while there was a
	// subscription. When reasons is full, it replaces olderReasons. The Redis nodes
	// remember those in efficiency mode.
	reasons, olderReasons map[attempt]string
	expired               func(*machine.Event) // may be nil
}

// attempt is the identity of an acquisition attempt.
type attempt struct {
	session engine.SessionID
	nonce   engine.Nonce
}

var _ raftstore.Observer = (*Hub)(nil)

// NewHub returns a Hub for one node.
func NewHub() *Hub {
	return &Hub{Recorder: history.NewRecorder(engine.MonotonicClock()), subscriptions: map[*subscription]bool{}, reasons: map[attempt]string{}}
}

// subscription collects the changed locks for one watch. Its fields are guarded by
// the mu of its Hub.
type subscription struct {
	hub     *Hub
	match   func(fencing.Resource) bool
	wake    chan struct{} // holds one wake-up
	changed map[fencing.Resource]bool
	all     bool
}

// Applied records events, and wakes subscribers.
func (h *Hub) Applied(entry raftstore.Entry, events []machine.Event) {
	h.Recorder.Applied(entry, events)
	for i := range events {
		if events[i].Type == machine.EventExpired {
			h.notifyExpired(&events[i])
		}
	}
	// A subscriber looks at the locks after it has subscribed, so it sees what was applied
	// before.
	if h.watched.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range events {
		e := &events[i]
		switch e.Type {
		case machine.EventReleased, machine.EventExpired, machine.EventBroken:
			h.addReason(attempt{e.Session, e.Nonce}, e.Type.String())
		}
		h.publish(e.Resources)
	}
}

// OnExpired makes the Hub call f for every lease that expires in correctness mode. f
// runs under the lock of the replica, and must return at once.
func (h *Hub) OnExpired(f func(*machine.Event)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expired = f
}

func (h *Hub) notifyExpired(e *machine.Event) {
	h.mu.Lock()
	f := h.expired
	h.mu.Unlock()
	if f != nil {
		f(e)
	}
}

// addReason records why a lease ended. The caller holds mu.
func (h *Hub) addReason(key attempt, reason string) {
	if len(h.reasons) == maxReasons {
		h.olderReasons, h.reasons = h.reasons, map[attempt]string{}
	}
	h.reasons[key] = reason
}

// reason returns why a holder's lease ended, as an event type.
func (h *Hub) reason(p *engine.Party) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := attempt{p.Session, p.Nonce}
	if reason, ok := h.reasons[key]; ok {
		return reason
	}
	if reason, ok := h.olderReasons[key]; ok {
		return reason
	}
	return unknownReason
}

// Restored makes all subscribers look at all locks again.
func (h *Hub) Restored(m *machine.Machine) {
	h.Recorder.Restored(m)
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscriptions {
		s.all = true
		s.notify()
	}
}

// publish marks locks as changed. The caller holds mu.
func (h *Hub) publish(names []fencing.Resource) {
	for s := range h.subscriptions {
		for _, name := range names {
			if s.all || !s.match(name) {
				continue
			}
			if len(s.changed) == maxChanged {
				s.all = true
			} else {
				s.changed[fencing.Resource(strings.Clone(string(name)))] = true
			}
			s.notify()
		}
	}
}

// subscribe starts to collect the changes of the locks that match.
func (h *Hub) subscribe(match func(fencing.Resource) bool) *subscription {
	s := &subscription{hub: h, match: match, wake: make(chan struct{}, 1), changed: map[fencing.Resource]bool{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscriptions[s] = true
	h.watched.Add(1)
	return s
}

// notify wakes the subscriber. The caller holds mu.
func (s *subscription) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take returns the locks that have changed since the last call. If all is true,
// any lock may have changed.
func (s *subscription) take() (changed map[fencing.Resource]bool, all bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	changed, all = s.changed, s.all
	s.changed, s.all = map[fencing.Resource]bool{}, false
	return changed, all
}

// cancel ends the subscription.
func (s *subscription) cancel() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.hub.subscriptions, s)
	s.hub.watched.Add(-1)
}

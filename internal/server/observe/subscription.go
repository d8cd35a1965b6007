package observe

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/raftstore/machine"
)

// maxChanged is the number of changed locks that a subscription keeps. Beyond it, the
// subscriber looks at all locks again.
const maxChanged = 4096

// hub wakes watches when locks change.
type hub struct {
	watched atomic.Int64 // the number of subscriptions

	mu            sync.Mutex
	subscriptions map[*subscription]bool
}

// subscription collects the changed locks for one watch. Its fields are guarded by
// the mu of its hub.
type subscription struct {
	hub     *hub
	match   func(fencing.Resource) bool
	wake    chan struct{} // holds one wake-up
	changed map[fencing.Resource]bool
	all     bool
}

// applied wakes the subscribers of changed locks.
func (h *hub) applied(events []machine.Event) {
	// A subscriber looks at the locks after it has subscribed, so it sees what was applied
	// before.
	if h.watched.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range events {
		h.publish(events[i].Resources)
	}
}

// restored makes all subscribers look at all locks again.
func (h *hub) restored() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscriptions {
		s.all = true
		s.notify()
	}
}

// publish marks locks as changed. The caller holds mu.
func (h *hub) publish(names []fencing.Resource) {
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
func (h *hub) subscribe(match func(fencing.Resource) bool) *subscription {
	s := &subscription{hub: h, match: match, wake: make(chan struct{}, 1), changed: map[fencing.Resource]bool{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subscriptions == nil {
		h.subscriptions = map[*subscription]bool{}
	}
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

// take returns the locks that changed since the previous call. If all is true, any lock
// may have changed.
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

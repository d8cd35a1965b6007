package hub

import (
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// Listener receives the losses of one incarnation of a session.
//
// It is registered before the session is opened or found, so that it misses no
// loss. Its incarnation is unknown until Identify. These orders are possible in
// one replica, if k1 is the previous incarnation of the session and k2 the
// listener's:
//
//   - Listen, k1 ends, k2 opens, Identify: the end of k1 does not concern the
//     listener, which stays.
//   - Listen, k2 loses something, Identify: the loss is stored, and Identify
//     reports it. Losses of k1 are dropped.
//   - Listen, k2 opens and ends, Identify: nothing will remove the listener
//     later, so Identify checks the machine and removes it.
//   - Identify, then k1 ends or k2 opens: this replica lags. Its events of k1 do
//     not concern the listener.
//   - Identify, k2 ends: the usual order. The listener gets the loss and is removed.
//   - Identify, then a late copy of k1's Close: it ends nothing.
//
// Identify runs under the lock of the machine, so nothing happens meanwhile.
type Listener struct{ Lost func(engine.Nonce, error) }

// registration is the state of a listener in one hub.
type registration struct {
	incarnation uint64 // 0 until Identify
	stored      []loss // of any incarnation, until Identify
}

// loss is the end of one lease.
type loss struct {
	incarnation uint64
	nonce       engine.Nonce
	err         error
}

// Listen registers a listener. Identify or Unlisten must follow.
func (h *Hub) Listen(id engine.SessionID, l *Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners[id] == nil {
		h.listeners[id] = map[*Listener]*registration{}
	}
	h.listeners[id][l] = &registration{}
}

// Identify sets the incarnation of a listener, and returns the calls that report
// its losses since Listen. The caller holds the lock of m, the machine of this
// replica, and makes the calls without it.
func (h *Hub) Identify(id engine.SessionID, l *Listener, incarnation uint64, m *machine.Machine) (calls []func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.listeners[id][l]
	if r == nil {
		return nil
	}
	for _, x := range r.stored {
		if x.incarnation == incarnation {
			calls = append(calls, func() { l.Lost(x.nonce, x.err) })
		}
	}
	*r = registration{incarnation: incarnation}
	if ended(m, id, incarnation) {
		h.remove(id, l)
	}
	return calls
}

// Unlisten removes a listener.
func (h *Hub) Unlisten(id engine.SessionID, l *Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(id, l)
}

// ended reports whether an incarnation has certainly ended in m, with all its leases. One
// whose number m has not assigned yet is still to come: this replica lags.
func ended(m *machine.Machine, id engine.SessionID, incarnation uint64) bool {
	if m.Ending(incarnation) {
		return false
	}
	if now := m.SessionInfo(id); now != (machine.SessionInfo{}) {
		return now.Incarnation > incarnation
	}
	return incarnation <= m.Order()
}

// remove drops a listener. The caller holds mu.
func (h *Hub) remove(id engine.SessionID, l *Listener) {
	if delete(h.listeners[id], l); len(h.listeners[id]) == 0 {
		delete(h.listeners, id)
	}
}

// removeIncarnation drops the listeners of an incarnation that has ended, and no
// others. The caller holds mu.
func (h *Hub) removeIncarnation(id engine.SessionID, incarnation uint64) {
	for l, r := range h.listeners[id] {
		if r.incarnation == incarnation {
			h.remove(id, l)
		}
	}
}

// removeEnded drops the listeners of all incarnations that have ended in m. The
// caller holds mu.
func (h *Hub) removeEnded(m *machine.Machine) {
	for id, listeners := range h.listeners {
		for l, r := range listeners {
			if r.incarnation != 0 && ended(m, id, r.incarnation) {
				h.remove(id, l)
			}
		}
	}
}

// losses returns the calls that report a loss, and stores it for listeners that
// are not identified yet. The caller holds mu.
func (h *Hub) losses(a Attempt, err error) (calls []func()) {
	for l, r := range h.listeners[a.Session] {
		switch r.incarnation {
		case 0:
			r.stored = append(r.stored, loss{a.Incarnation, a.Nonce, err})
		case a.Incarnation:
			calls = append(calls, func() { l.Lost(a.Nonce, err) })
		}
	}
	return calls
}

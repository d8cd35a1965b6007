package raftstore

import (
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// listener is told of the losses of one incarnation of a session.
//
// It listens before the session is opened or found, lest a loss falls between,
// and so before anyone knows which incarnation that will be. Of one hub's view
// these are the orders in which things can come (k1 has the id first, k2 is the
// one that is found):
//
//   - listen, k1 ends, k2 is opened, identify: the end of k1 is not that of the
//     listener, which stays.
//   - listen, k2 loses something, identify: the loss is kept, and told by
//     identify. What k1 lost meanwhile is dropped there.
//   - listen, k2 is opened and ends, identify: nothing will remove the listener
//     any more, so identify looks at the machine, and does not let it stay.
//   - identify, then k1 ends or k2 is opened: this replica lags. What it tells
//     of k1 is not for the listener.
//   - identify, k2 ends: the usual one. The listener is told and removed.
//   - identify, the late copy of a Close of k1: it ends nothing.
//
// Nothing can come while identify looks: it has the lock of the machine.
type listener struct{ lost func(engine.Nonce, error) }

// registration is what a hub knows of a listener.
type registration struct {
	incarnation uint64 // of the session; 0 until identify
	missed      []loss // of any incarnation, until identify
}

// loss is one that a listener is told of.
type loss struct {
	incarnation uint64
	nonce       engine.Nonce
	err         error
}

// listen registers a listener. identify follows, or unlisten.
func (h *hub) listen(id engine.SessionID, l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holders[id] == nil {
		h.holders[id] = map[*listener]*registration{}
	}
	h.holders[id][l] = &registration{}
}

// identify says which incarnation a listener is of, and returns the calls that
// tell it what that has lost since listen. m is the machine of this replica,
// which the caller has locked.
func (h *hub) identify(id engine.SessionID, l *listener, incarnation uint64, m *machine.Machine) (later []func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.holders[id][l]
	if e == nil {
		return nil
	}
	for _, x := range e.missed {
		if x.incarnation == incarnation {
			later = append(later, func() { l.lost(x.nonce, x.err) })
		}
	}
	*e = registration{incarnation: incarnation}
	if over(m, id, incarnation) {
		h.remove(id, l)
	}
	return later
}

// over reports whether an incarnation has certainly ended in this replica. One
// whose number is not given yet is still to come, as this replica lags.
func over(m *machine.Machine, id engine.SessionID, incarnation uint64) bool {
	if now := m.SessionInfo(id); now != (machine.SessionInfo{}) {
		return now.Incarnation > incarnation
	}
	return incarnation <= m.Order()
}

func (h *hub) unlisten(id engine.SessionID, l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(id, l)
}

// remove takes a listener out. The caller holds mu.
func (h *hub) remove(id engine.SessionID, l *listener) {
	if delete(h.holders[id], l); len(h.holders[id]) == 0 {
		delete(h.holders, id)
	}
}

// forget removes the listeners of an incarnation that has ended, and no others.
func (h *hub) forget(id engine.SessionID, incarnation uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l, e := range h.holders[id] {
		if e.incarnation == incarnation {
			h.remove(id, l)
		}
	}
}

// forgetEnded removes the listeners of all incarnations that have ended in m.
func (h *hub) forgetEnded(m *machine.Machine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep(m)
}

// sweep is forgetEnded. The caller holds mu.
func (h *hub) sweep(m *machine.Machine) {
	for id, listeners := range h.holders {
		for l, e := range listeners {
			if e.incarnation != 0 && over(m, id, e.incarnation) {
				h.remove(id, l)
			}
		}
	}
}

// losses returns the calls that tell a holder. A listener that is not identified
// yet is told by identify. The caller holds mu.
func (h *hub) losses(a attempt, err error) (calls []func()) {
	for l, e := range h.holders[a.session] {
		switch {
		case e.incarnation == 0:
			e.missed = append(e.missed, loss{a.incarnation, a.nonce, err})
		case e.incarnation == a.incarnation:
			calls = append(calls, func() { l.lost(a.nonce, err) })
		}
	}
	return calls
}

package model

import (
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Way is how a lock is provided.
type Way struct {
	Mode   engine.Mode
	Moving bool // to the other mode
	Ready  bool // efficiency locks may be granted
}

// bothModes is what a Witness knows of both modes.
type bothModes struct {
	ways    map[fencing.Resource]Way
	strict  map[fencing.Resource]fencing.Token // the largest in correctness mode
	redis   map[fencing.Resource]fencing.Token // the largest that Redis may have granted
	ranges  []Range
	ceiling fencing.Token
}

func newBothModes() bothModes {
	return bothModes{ways: map[fencing.Resource]Way{}, strict: map[fencing.Resource]fencing.Token{}, redis: map[fencing.Resource]fencing.Token{}}
}

// Routed tells how each lock is provided after a command, and what every Redis
// node should reach. Redis may grant a lock of the efficiency mode any token
// above floor, up to ceiling; floor counts when the lock comes to this mode, and
// the mode is ready.
func (w *Witness) Routed(ways map[fencing.Resource]Way, floor, ceiling fencing.Token) error {
	if ceiling < w.ceiling {
		return broken(Modes, "the ceiling went from %d to %d", w.ceiling, ceiling)
	}
	w.ceiling = ceiling
	for name, way := range ways {
		if way.Mode == engine.Efficiency {
			if old := w.ways[name]; way.Ready && !(old.Ready && old.Mode == engine.Efficiency) && floor < w.strict[name] {
				return broken(Modes, "Redis may grant %q a token above %d, and %d was granted before", name, floor, w.strict[name])
			}
			w.redis[name] = ceiling
		}
	}
	w.ways = ways
	for _, p := range w.waiters {
		for _, name := range p.request.Resources {
			if !ways[name].serves() {
				return broken(Closed, "attempt %d waits for %q", p.attempt.Nonce, name)
			}
		}
	}
	return nil
}

// serves reports whether the machine may grant a lock. The zero Way is of a lock
// that nobody was told of.
func (w Way) serves() bool { return !w.Moving && w.Mode != engine.Efficiency }

// RangeAssigned tells that a Redis node got a range of tokens.
func (w *Witness) RangeAssigned(r Range) error {
	if r.Floor >= r.Ceiling || r.Ceiling > fencing.MaxToken {
		return broken(Ranges, "(%d, %d]", r.Floor, r.Ceiling)
	}
	for _, other := range w.ranges {
		if r.Floor < other.Ceiling && other.Floor < r.Ceiling {
			return broken(Ranges, "(%d, %d] and (%d, %d]", r.Floor, r.Ceiling, other.Floor, other.Ceiling)
		}
	}
	for name, way := range w.ways {
		if way.Mode == engine.Efficiency && r.Floor < w.strict[name] {
			return broken(Modes, "a range above %d for Redis, and %q had %d", r.Floor, name, w.strict[name])
		}
	}
	w.ranges = append(w.ranges, r)
	return nil
}

// grantedBeside compares a grant with what is known of the other mode.
func (w *Witness) grantedBeside(e Event) error {
	for _, name := range e.Resources {
		if !w.ways[name].serves() {
			return broken(Closed, "%q with token %d", name, e.Token)
		}
		if e.Token <= w.redis[name] {
			return broken(Modes, "%q with token %d, and Redis may have granted %d", name, e.Token, w.redis[name])
		}
	}
	for _, name := range e.Resources {
		w.strict[name] = e.Token
	}
	return nil
}

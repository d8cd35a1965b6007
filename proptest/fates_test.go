package proptest

import (
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/model"
	"github.com/leased-project/leased/raftstore/machine"
)

// fate is how an attempt has ended.
type fate string

const (
	released  fate = "released"
	refused   fate = "refused"
	wasBroken fate = "broken"
	unknown   fate = "released before it was known"
	moved     fate = "refused because of a move"
)

// history is what the cases remember of one run.
type history struct {
	fates      map[model.Attempt]fate
	permits    map[model.Attempt]int
	past       map[engine.SessionID]bool // sessions that have ended
	grants     map[model.Attempt]bool
	pastGrants map[model.Attempt]bool // in a former life of the session
}

func newHistory() history {
	return history{fates: map[model.Attempt]fate{}, permits: map[model.Attempt]int{}, past: map[engine.SessionID]bool{},
		grants: map[model.Attempt]bool{}, pastGrants: map[model.Attempt]bool{}}
}

func (h *history) remember(command machine.Command, result machine.Result, events []machine.Event) {
	for _, e := range events {
		attempt := model.Attempt{Session: e.Session, Nonce: e.Nonce}
		switch e.Type {
		case machine.EventGranted:
			h.grants[attempt] = true
		case machine.EventReleased:
			h.fates[attempt] = released
		case machine.EventCancelled:
			h.fates[attempt] = released
			switch command.(type) {
			case *machine.SetPolicy, *machine.DeletePolicy:
				h.fates[attempt] = moved
			}
		case machine.EventBroken:
			h.fates[attempt] = wasBroken
		}
	}
	switch command := command.(type) {
	case *machine.Acquire:
		attempt := model.Attempt{Session: command.Session, Nonce: command.Request.Nonce}
		switch result.Code {
		case machine.Held, machine.WrongMode:
			h.fates[attempt] = refused
		case machine.Moving:
			h.fates[attempt] = moved
		case machine.Granted, machine.Queued:
			if h.fates[attempt] == moved {
				delete(h.fates, attempt)
			}
			if h.permits[attempt] == 0 {
				h.permits[attempt] = command.Request.Permits
			}
		}
	case *machine.Release:
		attempt := model.Attempt{Session: command.Session, Nonce: command.Nonce}
		if result.Code == machine.Ended && h.fates[attempt] == "" {
			h.fates[attempt] = unknown
		}
	case *machine.CloseSession:
		h.sessionEnded(command.Session, result)
	case *machine.Expire:
		h.sessionEnded(command.Session, result)
	case *machine.EndSessions:
		for _, id := range sessions {
			h.sessionEnded(id, result)
		}
	}
}

func (h *history) sessionEnded(id engine.SessionID, result machine.Result) {
	if result.Code != machine.Done {
		return
	}
	h.past[id] = true
	for attempt := range h.grants {
		if attempt.Session == id {
			delete(h.grants, attempt)
			h.pastGrants[attempt] = true
		}
	}
	for attempt := range h.fates {
		if attempt.Session == id {
			delete(h.fates, attempt)
		}
	}
	for attempt := range h.permits {
		if attempt.Session == id {
			delete(h.permits, attempt)
		}
	}
}

// otherPermits reports whether the holder of e is beside one that asked for
// another number of slots.
func (p *pair) otherPermits(e machine.Event) bool {
	mine := p.permits[model.Attempt{Session: e.Session, Nonce: e.Nonce}]
	for _, h := range p.machine.Inspect(e.Resources[0]).Holders {
		if n := p.permits[model.Attempt{Session: h.Session, Nonce: h.Nonce}]; mine > 0 && n > 0 && n != mine {
			return true
		}
	}
	return false
}

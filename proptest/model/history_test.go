package model_test

import (
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// outcome is the way in which an attempt ended.
type outcome string

const (
	released  outcome = "released"
	refused   outcome = "refused"
	wasBroken outcome = "broken"
	unknown   outcome = "released before it was known"
	moved     outcome = "refused because of a move"
)

// requestID identifies an attempt within one incarnation of a session.
type requestID struct {
	Session engine.SessionID
	Nonce   engine.Nonce
}

// history is the part of one run that the cases need.
type history struct {
	outcomes   map[requestID]outcome
	past       map[engine.SessionID]bool // sessions that have ended
	grants     map[requestID]bool
	pastGrants map[requestID]bool // in a former incarnation of the session
}

func newHistory() history {
	return history{outcomes: map[requestID]outcome{}, past: map[engine.SessionID]bool{},
		grants: map[requestID]bool{}, pastGrants: map[requestID]bool{}}
}

func (h *history) remember(command machine.Command, result machine.Result, events []machine.Event) {
	for _, e := range events {
		attempt := requestID{Session: e.Session, Nonce: e.Nonce}
		switch e.Type {
		case machine.EventGranted:
			h.grants[attempt] = true
		case machine.EventReleased:
			h.outcomes[attempt] = released
		case machine.EventCancelled:
			h.outcomes[attempt] = released
			switch command.(type) {
			case *machine.SetPolicy, *machine.DeletePolicy:
				h.outcomes[attempt] = moved
			}
		case machine.EventBroken:
			h.outcomes[attempt] = wasBroken
		}
	}
	switch command := command.(type) {
	case *machine.Acquire:
		attempt := requestID{Session: command.Session, Nonce: command.Request.Nonce}
		switch result.Code {
		case machine.Held, machine.WrongMode, machine.OtherPermits:
			h.outcomes[attempt] = refused
		case machine.Migrating:
			h.outcomes[attempt] = moved
		case machine.Granted, machine.Queued:
			if h.outcomes[attempt] == moved {
				delete(h.outcomes, attempt)
			}
		}
	case *machine.Release:
		attempt := requestID{Session: command.Session, Nonce: command.Nonce}
		if result.Code == machine.Ended && h.outcomes[attempt] == "" {
			h.outcomes[attempt] = unknown
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
	for attempt := range h.outcomes {
		if attempt.Session == id {
			delete(h.outcomes, attempt)
		}
	}
}

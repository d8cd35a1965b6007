package clientcore

import (
	"errors"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// The pause before the next member is tried grows from minSearchPause to
	// maxSearchPause.
	minSearchPause = 5 * time.Millisecond
	maxSearchPause = 100 * time.Millisecond
)

// Search is the search of one call for a member that serves it. While a member cannot be
// reached, redirects to the leader or does not know the caller, the call goes to the next
// one, until the time limit passes. A call that may have had an effect is not repeated.
type Search struct {
	limit    engine.Instant
	tries    int
	rejected map[string]bool // members that do not know the caller
	followed map[string]bool // members that were named as the leader
	down     bool            // a member could not be reached
	answer   error           // the last redirect or rejection
}

// Miss is a try that failed.
type Miss struct {
	// Address is the member's.
	Address string
	// Reached says that the member was connected.
	Reached bool
	// Redirected says that the member does not lead. Leader is the leader that it names,
	// empty if it knows none.
	Redirected bool
	Leader     string
	// Rejected says that the member does not know the caller.
	Rejected bool
	// Again says that the connection failed, and another member may be reachable.
	Again bool
	Err   error
}

// Turn is what to do after a Miss.
type Turn struct {
	// Again says to try again after Pause. Otherwise the call fails with Err.
	Again bool
	Pause time.Duration
	Err   error
	// Leave says to leave the connection, for the member Leader unless it is empty.
	Leave  bool
	Leader string
}

// NewSearch returns the search of a call that began now.
func NewSearch(now engine.Instant, limit time.Duration) *Search {
	return &Search{limit: now.Add(limit), rejected: map[string]bool{}, followed: map[string]bool{}}
}

// Missed decides what follows a try that failed.
func (m *Members) Missed(now engine.Instant, s *Search, miss Miss) Turn {
	t := Turn{Err: miss.Err}
	known := false // the next member is known, and was not tried yet
	switch {
	case errors.Is(miss.Err, engine.ErrUncertain):
	case !miss.Reached:
		t.Again, s.down = miss.Again, true
		if s.answer != nil {
			t.Err = s.answer // more telling than that another member is down
		}
	case miss.Redirected:
		s.answer = miss.Err
		t.Again, t.Leave, t.Leader = true, true, miss.Leader
		if miss.Leader == "" {
			clear(s.rejected) // an election is under way
		}
		if m.Avoids(now, miss.Leader) {
			t.Leader = "" // the member does not know yet that the leader is gone
		}
		// Two members that name each other are not asked without a pause.
		known = miss.Leader != "" && !s.followed[miss.Leader]
		s.followed[miss.Leader] = true
	case miss.Rejected: // the member may not have read its users yet, and one that is down may know the caller
		t.Again, t.Leave = !s.rejected[miss.Address] || s.down, true
		s.answer, s.rejected[miss.Address] = miss.Err, true
		t.Again = t.Again && len(s.rejected) < len(m.endpoints)
	}
	t.Again = t.Again && now.Until(s.limit) > 0
	if !known {
		t.Pause = min(minSearchPause<<min(s.tries, 10), maxSearchPause)
	}
	s.tries++
	return t
}

package redlock

import (
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// Attempt is what a client knows of its attempt, apart from the talks.
type Attempt struct {
	Started  bool
	Epoch    uint8
	Proposed uint8
	Outcome  quorum.Outcome
	Token    uint8
	Before   uint8 // the largest token that was granted when it started
}

// Joining is one try to bring a node back.
type Joining struct {
	Way   Message // of the init; Unsent while it prepares
	Begun bool
	Word  bool // nodes that were restarted are believed
	Epoch uint8
	Floor uint8
}

// World is one state of everything. Columns are last, so that those that are
// used are next to the rest.
type World struct {
	Attempts [maxAttempts]Attempt
	Joins    [maxJoins]Joining
	Nodes    uint8
	Losses   uint8 // that may still happen
	Restarts uint8 // without a loss, that may still happen
	Columns  [maxNodes]Column
}

// NewWorld has n initialised nodes.
func NewWorld(n, losses int) World {
	w := World{Nodes: uint8(n), Losses: uint8(losses)}
	for i := range n {
		w.Columns[i].Data, w.Columns[i].Epoch = true, 1
	}
	return w
}

// Violation says which promise was broken.
type Violation string

// Error is the violation.
func (v Violation) Error() string { return string(v) }

func (w *World) columns() []Column { return w.Columns[:w.Nodes] }

func (w *World) granted() uint8 {
	top := uint8(0)
	for _, a := range w.Attempts {
		if a.Outcome == quorum.Granted {
			top = max(top, a.Token)
		}
	}
	return top
}

// reports are what the nodes say of themselves if all are asked at one moment.
func (w *World) reports() []quorum.Report {
	reports := make([]quorum.Report, w.Nodes)
	for i := range w.columns() {
		c := &w.Columns[i]
		reports[i] = quorum.Report{Known: true, Data: c.Data, Doubted: c.Doubt, Believed: c.Word && c.Data, Epoch: uint64(c.Epoch), Max: fencing.Token(c.Max)}
	}
	return reports
}

// start begins attempt a in an epoch: the acquire is on its way to all nodes.
func (w *World) start(a int, epoch uint8) {
	w.Attempts[a] = Attempt{Started: true, Epoch: epoch, Before: w.granted()}
	for i := range w.columns() {
		w.Columns[i].Talks[a].Acquire = Asked
	}
}

// answerAcquire is the node's turn.
func (w *World) answerAcquire(a, node int) {
	c := &w.Columns[node]
	t := &c.Talks[a]
	t.AcquireSays, t.Acquire = c.acquire(a, w.Attempts[a].Epoch), Answered
	w.forget(a)
}

// hearAcquire is the client's turn.
func (w *World) hearAcquire(a, node int) error {
	t := &w.Columns[node].Talks[a]
	t.Acquire, t.Vote, t.AcquireSays = Received, t.AcquireSays, Reply{}
	return w.decide(a)
}

func (w *World) answerRaise(a, node int) {
	c := &w.Columns[node]
	t := &c.Talks[a]
	t.RaiseSays, t.Raise = c.raise(a, t.RaiseTo, w.Attempts[a].Epoch), Answered
	w.forget(a)
}

// hearRaise does what attempt.raised does in production.
func (w *World) hearRaise(a, node int) error {
	t := &w.Columns[node].Talks[a]
	if t.RaiseTo >= w.Attempts[a].Proposed {
		t.Raising = false
	}
	switch {
	case t.RaiseSays.Kind == quorum.Accepted:
		t.Vote = Reply{Kind: quorum.Accepted, Token: max(t.Vote.Token, t.RaiseTo)}
	case t.Vote.Kind == quorum.Accepted && t.Vote.Token >= t.RaiseTo:
	default:
		t.Vote = Reply{Kind: quorum.Refused}
	}
	t.Raise, t.RaiseSays, t.RaiseTo = Unsent, Reply{}, 0
	return w.decide(a)
}

// votes are the talks as package quorum sees them.
func (w *World) votes(a int) (votes [maxNodes]quorum.Vote) {
	for i := range w.columns() {
		t := &w.Columns[i].Talks[a]
		votes[i] = quorum.Vote{State: t.Vote.Kind, Token: fencing.Token(t.Vote.Token), Raising: t.Raising}
	}
	return votes
}

// decide does what attempt.decide does in production.
func (w *World) decide(a int) error {
	at := &w.Attempts[a]
	if at.Outcome != quorum.Wait {
		return nil
	}
	votes := w.votes(a)
	d := quorum.Decide(votes[:w.Nodes], fencing.Token(at.Proposed))
	switch d.Outcome {
	case quorum.Raise:
		at.Proposed = uint8(d.Token)
		for i := range w.columns() {
			t := &w.Columns[i].Talks[a]
			if t.Vote.Kind == quorum.Pending || t.Vote.Kind == quorum.Accepted && t.Vote.Token < at.Proposed {
				t.Raise, t.RaiseTo, t.RaiseSays, t.Raising = Asked, at.Proposed, Reply{}, true
			}
		}
	case quorum.Lost:
		at.Outcome = quorum.Lost
	case quorum.Granted:
		at.Outcome, at.Token = quorum.Granted, uint8(d.Token)
		if err := w.judge(a); err != nil {
			return err
		}
	}
	w.forget(a)
	return nil
}

// judge holds a grant against the promises.
func (w *World) judge(a int) error {
	at := w.Attempts[a]
	for other, o := range w.Attempts {
		if other != a && o.Outcome == quorum.Granted && o.Token == at.Token {
			return Violation(fmt.Sprintf("T1: token %d is granted to attempt %d and to attempt %d", at.Token, other, a))
		}
	}
	if at.Token <= at.Before {
		return Violation(fmt.Sprintf("T2: attempt %d is granted token %d, though %d was granted before it started", a, at.Token, at.Before))
	}
	return nil
}

// forget drops what an attempt that is decided will not look at, so that equal
// worlds look equal. What is still on its way to a node stays.
func (w *World) forget(a int) {
	if w.Attempts[a].Outcome == quorum.Wait {
		return
	}
	w.Attempts[a].Proposed, w.Attempts[a].Before = 0, 0
	for i := range w.columns() {
		t := &w.Columns[i].Talks[a]
		t.Vote, t.Raising = Reply{}, false
		if t.Acquire >= Answered {
			t.Acquire, t.AcquireSays = Received, Reply{}
		}
		if t.Raise != Asked {
			t.Raise, t.RaiseTo, t.RaiseSays = Unsent, 0, Reply{}
		}
	}
}

// rotateAttempts gives each of the first n attempts the name of the next.
func (w *World) rotateAttempts(n int) {
	if n < 2 {
		return
	}
	rotate(w.Attempts[:n])
	for i := range w.columns() {
		c := &w.Columns[i]
		rotate(c.Talks[:n])
		if c.Lock != 0 {
			c.Lock = c.Lock%uint8(n) + 1
		}
	}
}

// rotateJoins gives each of the first n joins the name of the next.
func (w *World) rotateJoins(n int) {
	if n < 2 {
		return
	}
	rotate(w.Joins[:n])
	for i := range w.columns() {
		c := &w.Columns[i]
		rotate(c.Prepares[:n])
		if c.Join != 0 {
			c.Join = c.Join%uint8(n) + 1
		}
	}
}

func rotate[T any](all []T) {
	last := all[len(all)-1]
	copy(all[1:], all)
	all[0] = last
}

//go:build unix

package pausedemo

import (
	"fmt"
	"io"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/promise"
	"github.com/leased-project/leased/proptest/spacetime"
)

// file is the party that holds the account.
const file = "account file"

// history is what happened in one telling of the story, for the picture.
type history struct {
	began   time.Time
	gated   bool
	events  []promise.Event
	version uint64 // how often the account was written
	ops     uint64
}

func (h *history) add(e promise.Event) {
	e.At = time.Since(h.began)
	if e.Kind != promise.Paused && e.Kind != promise.Resumed {
		e.Resource = account
	}
	h.events = append(h.events, e)
}

// note takes a word of a holder.
func (h *history) note(a *actor, said sentence) {
	mine := promise.Event{Who: a.name, Attempt: promise.Attempt(fmt.Sprintf("%s %d", a.name, a.attempts)), Token: said.token, Op: h.ops}
	stored := promise.Event{Who: file, Op: h.ops}
	if h.gated { // else the storage hears of no token
		stored.Token = said.token
	}
	as := func(e promise.Event, kind promise.Kind) promise.Event { e.Kind = kind; return e }
	switch said.word {
	case wordAsks:
		a.attempts++
		mine.Attempt = promise.Attempt(fmt.Sprintf("%s %d", a.name, a.attempts))
		mine.Op = 0
		h.add(as(mine, promise.Asked))
	case wordAcquired:
		mine.Op = 0
		h.add(as(mine, promise.Told))
	case wordEntered:
		stored.Op = 0
		h.add(as(stored, promise.Entered))
	case wordRead:
		a.seen = h.version
	case wordWrites:
		h.ops++
		mine.Op, mine.Attempt = h.ops, ""
		h.add(as(mine, promise.Sent))
	case wordWrote:
		stored.Seen, h.version = a.seen, h.version+1
		stored.Version, stored.Note = h.version, said.text
		h.add(as(stored, promise.Wrote))
		h.add(as(mine, promise.Acknowledged))
	case wordRefused:
		h.add(as(stored, promise.Stale))
		h.add(as(mine, promise.Rejected))
		h.add(as(mine, promise.Ended))
	case wordDone:
		h.add(as(mine, promise.Ended))
	}
}

// section is the picture of a history, with what is wrong in it.
func (h *history) section(title, note string) spacetime.Section {
	s := spacetime.Section{Title: title, Note: note, Events: h.events}
	judge := promise.NewJudge(title)
	for _, e := range h.events {
		if v, ok := judge.See(e).(*promise.Violation); ok {
			s.Bad = append(s.Bad, v)
		}
	}
	return s
}

// Picture draws what Run has told, as one page of HTML.
func (d *Demo) Picture(w io.Writer) error {
	return spacetime.WritePage(w, "A paused holder wakes up and writes", d.sections...)
}

// sentence is what a holder says: a word for the director, the token that it is
// about, and words for the reader.
type sentence struct {
	word  string
	token fencing.Token
	text  string
}

// The words of a holder. Those without a text are for the picture only.
const (
	wordAsks     = "asks"
	wordAcquired = "acquired"
	wordEntered  = "entered"
	wordRead     = "read"
	wordWrites   = "writes"
	wordWrote    = "wrote"
	wordRefused  = "refused"
	wordDone     = "done"
)

func (s sentence) String() string { return fmt.Sprintf("%s|%d|%s", s.word, s.token, s.text) }

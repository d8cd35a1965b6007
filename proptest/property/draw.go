package property

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/leased-project/leased/fencing"
)

// The colours of what violates a property, of a refused write, and of a fault.
const (
	red    = "#f4a3a3"
	yellow = "#f3dd8b"
	grey   = "#d5d5d5"
)

var colors = map[Kind]string{Stale: yellow, Rejected: yellow, Fault: grey,
	Paused: grey}

// Draw writes an HTML page with a history, with the events of bad in red: a lane for the leases of each process, one
// for its operations at the gate and one for its faults. A box reaches from the start of a request, lease, operation
// or pause to its end. The axis is not to scale: every event has a column of its own, and the tooltip of a box has
// the time.
func Draw(w io.Writer, events []Event, bad ...*Violation) error {
	var info porcupine.LinearizationInfo
	for i := range events {
		info.AddAnnotations(boxes(events, i, bad))
	}
	return porcupine.Visualize(guarded, info, w)
}

// span is a kind of event that lasts until one of the kinds of ends.
type span struct {
	ends []Kind
	same func(a, b Event) bool
}

func sameAttempt(a, b Event) bool { return a.Attempt == b.Attempt }
func sameOp(a, b Event) bool      { return a.Op == b.Op }
func sameProcess(a, b Event) bool { return a.Who == b.Who }

var spans = map[Kind]span{
	Requested: {[]Kind{Acquired, Denied}, sameAttempt},
	Acquired:  {[]Kind{Ended}, sameAttempt},
	Sent:      {[]Kind{Acknowledged, Rejected}, sameOp},
	Paused:    {[]Kind{Resumed}, sameProcess},
}

// boxes returns the box that begins with an event, and one for the property that the event violates. An event that
// only ends a box has none of its own.
func boxes(events []Event, i int, bad []*Violation) (all []porcupine.Annotation) {
	e := events[i]
	box := porcupine.Annotation{Tag: lane(e), Start: int64(i), End: int64(i)}
	box.Description, box.Details = describe(e), e.String()
	violates := func(e Event) bool {
		return slices.ContainsFunc(bad, func(v *Violation) bool { return v.Event == e })
	}
	color := colors[e.Kind]
	wrong := violates(e)
	if s, ok := spans[e.Kind]; ok {
		ends := func(o Event) bool { return slices.Contains(s.ends, o.Kind) && s.same(e, o) }
		if n := slices.IndexFunc(events[i+1:], ends); n < 0 {
			box.End, box.Description = int64(len(events)), box.Description+" …"
		} else {
			last := events[i+1+n]
			box.End, box.Details = int64(i+1+n), box.Details+"\n"+last.String()
			wrong = wrong || violates(last)
			if last.Kind == Rejected {
				color, box.Description = yellow, box.Description+" refused"
			}
		}
	} else if begun(events[:i], e) && !wrong {
		return nil
	}
	if box.BackgroundColor = color; wrong {
		box.BackgroundColor = red
	}
	all = append(all, box)
	for _, v := range bad {
		if v.Event == e {
			all = append(all, porcupine.Annotation{Tag: "violations", Start: int64(i), End: int64(i),
				Description: "Violated: " + string(v.Property), Details: v.Error(), BackgroundColor: red})
		}
	}
	return all
}

// begun reports whether an event ends a box that an earlier event began.
func begun(earlier []Event, e Event) bool {
	return slices.ContainsFunc(earlier, func(o Event) bool {
		s, ok := spans[o.Kind]
		return ok && slices.Contains(s.ends, e.Kind) && s.same(o, e)
	})
}

// lane returns the name of the lane of an event.
func lane(e Event) string {
	who := cmp.Or(e.Who, "all")
	switch e.Kind {
	case Sent, Acknowledged, Rejected:
		return who + " at the gate"
	case Fault, Paused, Resumed:
		return who + ", faults"
	case Entered, Wrote, Stale, Found:
		return cmp.Or(e.Who, "storage")
	}
	return who
}

// describe returns the text in the box of an event.
func describe(e Event) string {
	text := e.Kind.String()
	switch e.Kind {
	case Requested:
		text = "acquire"
	case Acquired:
		text = "lease"
	case Sent:
		text = e.Access.String()
	case Wrote:
		text = fmt.Sprintf("version %d -> %d", e.Seen, e.Version)
	case Fault, Paused:
		text = cmp.Or(e.Note, text)
	}
	if e.Token != fencing.None {
		text += fmt.Sprintf(", token %d", e.Token)
	}
	return text
}

// after is the number of events that an Excerpt keeps after the explained one.
const after = 6

// grantKey identifies a grant.
type grantKey struct {
	resource fencing.Resource
	token    fencing.Token
}

// Excerpt returns the part of a history that explains one of its events: about n earlier events of the same resource,
// the faults of the processes concerned, and a few later events.
func Excerpt(events []Event, of Event, n int) []Event {
	at := slices.Index(events, of)
	if at < 0 {
		at = len(events) - 1
	}
	concerns := func(e Event) bool {
		return of.Resource == "" || e.Resource == "" || e.Resource == of.Resource
	}
	first := at
	for kept := 0; first > 0 && kept < n; first-- {
		if concerns(events[first-1]) {
			kept++
		}
	}
	processes, tokens := map[string]bool{}, map[grantKey]bool{{of.Resource, of.Token}: true}
	rest := events[first:min(len(events), at+after+1)]
	for _, e := range rest {
		if e.Resource != "" && concerns(e) {
			processes[e.Who], tokens[grantKey{e.Resource, e.Token}] = true, true
		}
	}
	// The grants of the leases concerned, however old, and the pauses that last.
	var part []Event
	for i, e := range events[:first] {
		if e.Kind == Acquired && tokens[grantKey{e.Resource, e.Token}] {
			part = append(part, e)
			processes[e.Who] = true
		}
		resumes := func(o Event) bool { return o.Kind == Resumed && o.Who == e.Who }
		if e.Kind == Paused && processes[e.Who] && !slices.ContainsFunc(events[i:first], resumes) {
			part = append(part, e)
		}
	}
	for _, e := range rest {
		if concerns(e) && (e.Resource != "" || e.Who == "" || processes[e.Who] || e == of) {
			part = append(part, e)
		}
	}
	return part
}

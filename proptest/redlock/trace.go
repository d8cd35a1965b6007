package redlock

import (
	"fmt"
	"strings"

	"github.com/leased-project/leased/redlockadapter/quorum"
)

// failure formats a violation with its trace.
func (s *Search) failure(err error, events []event) error {
	var b strings.Builder
	w := s.First()
	for i, e := range events {
		then := w
		_ = s.apply(&then, e)
		fmt.Fprintf(&b, "%3d %s\n", i+1, s.describe(e, &w, &then))
		w = then
	}
	return fmt.Errorf("%w, in %d steps:\n%s", err, len(events), b.String())
}

// describe formats an event and its effects.
func (s *Search) describe(e event, was, is *State) string {
	parameters := strings.NewReplacer("{a}", string('A'+rune(e.A)), "{A}", fmt.Sprint(e.A), "{B}", fmt.Sprint(e.B),
		"{C}", fmt.Sprint(e.C), "{D}", fmt.Sprint(e.D), "{mask}", fmt.Sprintf("%05b", e.C),
		"{old}", fmt.Sprintf("%05b", e.B))
	text := parameters.Replace(kinds[e.Kind].text)
	if l := is.Log; l != was.Log {
		text += fmt.Sprintf("; log: version %d, %s, last token %s, floor %s, ceiling %s, fleet %d", l.Version, l.modes(),
			name(l.Last), name(l.Floor), name(l.Ceiling), l.Fleet)
	}
	for i := range s.Nodes {
		for m := range is.Nodes[i].Count {
			text += describeServer(i, m, is.Nodes[i].Servers[m], was.Nodes[i].Servers[m])
		}
	}
	for i := range s.Attempts {
		switch a := is.Attempts[i]; {
		case a == was.Attempts[i]:
		case a.Outcome == quorum.Granted:
			text += fmt.Sprintf("; %c is granted %s", 'A'+rune(i), name(a.Token))
		case a.Outcome == quorum.Lost:
			text += fmt.Sprintf("; %c is lost", 'A'+rune(i))
		case a.Proposed != 0:
			text += fmt.Sprintf("; %c raises to %s", 'A'+rune(i), name(a.Proposed))
		default:
			text += fmt.Sprintf(" under version %d of fleet %d", a.Version, a.Fleet)
		}
	}
	return text
}

// describeServer formats a server that has changed.
func describeServer(n int, m uint8, is, was server) string {
	is.Reached, was.Reached = false, false
	switch {
	case is == was:
		return ""
	case is.Version == 0:
		return fmt.Sprintf("; node %d, server %d: empty", n, m)
	}
	text := fmt.Sprintf("; node %d, server %d: version %d, fleet %d, max %s, floor %s, ceiling %s", n, m,
		is.Version, is.Fleet, name(is.Max), name(is.Floor), name(is.Ceiling))
	if is.Lock != 0 {
		text += fmt.Sprintf(", held by %c with %s", 'A'+rune(is.Lock-1), name(is.Last))
	}
	return text
}

// modes formats the mode of the lock.
func (r *register) modes() string {
	names := [...]string{none: "", efficiency: "efficiency", correctness: "correctness"}
	if r.Next != none {
		return names[r.Mode] + " to " + names[r.Next]
	}
	return names[r.Mode]
}

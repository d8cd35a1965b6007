package gatetest

import (
	"errors"
	"fmt"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
)

// ledger is the naive second version of the rule: it remembers everything that
// was admitted and looks through all of it. It shares no code with fencing.
type ledger struct {
	admitted []uint64
	value    string
}

// verdict says what must happen to a token: "pass", "stale", "jump" or "none"
// (to enter without a token where nothing is fenced).
func (l *ledger) verdict(token, bound uint64, enter bool) string {
	var highest uint64
	for _, before := range l.admitted {
		if before > highest {
			highest = before
		}
	}
	for _, before := range l.admitted {
		if before > token {
			return "stale"
		}
	}
	if token == 0 && enter {
		return "none"
	}
	if bound > 0 && token > highest+bound {
		return "jump"
	}
	return "pass"
}

func (l *ledger) mark() uint64 {
	var highest uint64
	for _, before := range l.admitted {
		highest = max(highest, before)
	}
	return highest
}

func verdictOf(err error) string {
	switch {
	case err == nil:
		return "pass"
	case errors.Is(err, fencing.ErrStale):
		return "stale"
	case errors.Is(err, fencing.ErrJump):
		return "jump"
	case errors.Is(err, fencing.ErrNoToken):
		return "none"
	default:
		return err.Error()
	}
}

// history compares random histories with the ledger. Handles are used in turn,
// as processes would.
func history(s *stage) { s.histories(0) }

func boundedHistory(s *stage) { s.histories(40) }

func (s *stage) histories(bound uint64) {
	rule := fencing.Rule{MaxJump: fencing.Token(bound)}
	handles := []Subject{s.open(s.T, rule), s.open(s.T, rule)}
	run := 0
	rapid.Check(s.T, func(t *rapid.T) {
		run++
		s.compare(t, handles, bound, fmt.Sprintf("run/%d", run))
	})
}

func (s *stage) compare(t *rapid.T, handles []Subject, bound uint64, prefix string) {
	ledgers := map[fencing.Resource]*ledger{}
	for step := range rapid.IntRange(1, 25).Draw(t, "steps") {
		g := handles[rapid.IntRange(0, len(handles)-1).Draw(t, "handle")]
		resource := fencing.Resource(fmt.Sprintf("%s/%d", prefix, rapid.IntRange(0, 2).Draw(t, "resource")))
		token := rapid.OneOf(rapid.Uint64Range(0, 8), rapid.Uint64Range(0, 120)).Draw(t, "token")
		enter := rapid.Bool().Draw(t, "enter")
		l := ledgers[resource]
		if l == nil {
			l = &ledger{}
			ledgers[resource] = l
		}
		want := l.verdict(token, bound, enter)
		var err error
		if enter {
			err = g.Enter(s.ctx, resource, fencing.Token(token))
		} else {
			err = g.Write(s.ctx, resource, fencing.Token(token), fmt.Sprint(step))
		}
		require.Equal(t, want, verdictOf(err), "token %d after %v", token, l.admitted)
		if want == "pass" {
			l.admitted = append(l.admitted, token)
			if !enter {
				l.value = fmt.Sprint(step)
			}
		}
		mark, err := g.Mark(s.ctx, resource)
		require.NoError(t, err)
		require.Equal(t, l.mark(), uint64(mark))
		value, err := g.Read(s.ctx, resource)
		require.NoError(t, err)
		require.Equal(t, l.value, value)
	}
}

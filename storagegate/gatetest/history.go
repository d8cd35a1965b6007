package gatetest

import (
	"errors"
	"fmt"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
)

// oracle is a naive second version of the rule: it keeps every admitted token
// and compares with all of them. It shares no code with package fencing.
type oracle struct {
	admitted []uint64
	value    string
}

// verdict returns the expected result for a token: "admitted", "stale", "jump",
// or "no token" for entering without a token a resource that is not fenced.
func (o *oracle) verdict(token, bound uint64, enter bool) string {
	switch mark := o.mark(); {
	case token < mark:
		return "stale"
	case token == 0 && enter:
		return "no token"
	case bound > 0 && token > mark+bound:
		return "jump"
	}
	return "admitted"
}

func (o *oracle) mark() (largest uint64) {
	for _, token := range o.admitted {
		largest = max(largest, token)
	}
	return largest
}

func verdictOf(err error) string {
	switch {
	case err == nil:
		return "admitted"
	case errors.Is(err, fencing.ErrStale):
		return "stale"
	case errors.Is(err, fencing.ErrJump):
		return "jump"
	case errors.Is(err, fencing.ErrNoToken):
		return "no token"
	default:
		return err.Error()
	}
}

// histories compares random histories of several handles with the oracle.
func histories(bound uint64) func(s *scenario) {
	return func(s *scenario) {
		rule := fencing.Rule{MaxJump: fencing.Token(bound)}
		handles := []Subject{s.open(s.T, rule), s.open(s.T, rule)}
		run := 0
		rapid.Check(s.T, func(t *rapid.T) {
			run++
			s.compare(t, handles, bound, fmt.Sprintf("run/%d", run))
		})
	}
}

func (s *scenario) compare(t *rapid.T, handles []Subject, bound uint64, prefix string) {
	oracles := map[fencing.Resource]*oracle{}
	for step := range rapid.IntRange(1, 25).Draw(t, "steps") {
		g := handles[rapid.IntRange(0, len(handles)-1).Draw(t, "handle")]
		resource := fencing.Resource(fmt.Sprintf("%s/%d", prefix, rapid.IntRange(0, 2).Draw(t, "resource")))
		token := rapid.OneOf(rapid.Uint64Range(0, 8), rapid.Uint64Range(0, 120)).Draw(t, "token") +
			uint64(fencing.FloorStep)*rapid.SampledFrom([]uint64{0, 0, 0, 0, 0, 1, 2}).Draw(t, "floor steps")
		enter := rapid.Bool().Draw(t, "enter")
		o := oracles[resource]
		if o == nil {
			o = &oracle{}
			oracles[resource] = o
		}
		want := o.verdict(token, bound, enter)
		var err error
		if enter {
			err = g.Enter(s.ctx, resource, fencing.Token(token))
		} else {
			err = g.Write(s.ctx, resource, fencing.Token(token), fmt.Sprint(step))
		}
		require.Equal(t, want, verdictOf(err), "token %d after %v", token, o.admitted)
		if want == "admitted" {
			o.admitted = append(o.admitted, token)
			if !enter {
				o.value = fmt.Sprint(step)
			}
		}
		mark, err := g.Mark(s.ctx, resource)
		require.NoError(t, err)
		require.Equal(t, o.mark(), uint64(mark))
		value, err := g.Read(s.ctx, resource)
		require.NoError(t, err)
		require.Equal(t, o.value, value)
	}
}

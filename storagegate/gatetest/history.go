package gatetest

import (
	"errors"
	"fmt"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
)

// outcome is the result that a call must have.
type outcome int

// The outcomes: applied, refused because of the mark or the bound on the jump, and refused because entering needs a
// token although nothing is fenced.
const (
	admitted outcome = iota
	stale
	tooFar
	tokenless
)

// The handles of a script.
const a, b = 0, 1

// step is a call of a handle, with the outcome that it must have.
type step struct {
	handle int
	enters bool
	token  fencing.Token
	want   outcome
}

func enter(handle int, token fencing.Token, want outcome) step {
	return step{handle, true, token, want}
}
func write(handle int, token fencing.Token, want outcome) step {
	return step{handle, false, token, want}
}

// history is the calls on one resource, with the mark and the value that it must have.
type history struct {
	*scenario
	resource fencing.Resource
	rule     fencing.Rule
	handles  []Subject
	mark     fencing.Token
	value    string
}

// play makes the calls of two handles. Every resource has its own mark, so another one is free at the end.
func (s *scenario) play(rule fencing.Rule, steps []step) {
	h := &history{scenario: s, resource: orders, rule: rule, handles: []Subject{s.open(s.T, rule), s.open(s.T, rule)}}
	for i, step := range steps {
		h.do(s, step, fmt.Sprint("write ", i))
	}
	other := &history{scenario: s, resource: "invoices", rule: rule, handles: h.handles}
	other.do(s, write(a, 1, admitted), "other")
}

// do makes a call and requires its outcome, and then the mark and the value on all handles.
func (h *history) do(t require.TestingT, step step, value string) {
	var err error
	if g := h.handles[step.handle]; step.enters {
		err = g.Enter(h.ctx, h.resource, step.token)
	} else {
		err = g.Write(h.ctx, h.resource, step.token, value)
	}
	what := fmt.Sprintf("%+v after mark %d", step, h.mark)
	switch step.want {
	case admitted:
		require.NoError(t, err, what)
		h.mark = max(h.mark, step.token)
		if !step.enters {
			h.value = value
		}
	case stale:
		requireStale(t, err, h.resource, step.token, h.mark)
		require.Equal(t, step.token == fencing.None, errors.Is(err, fencing.ErrNoToken), what)
	case tooFar:
		var jump *fencing.JumpError
		require.ErrorAs(t, err, &jump, what)
		require.Equal(t, fencing.JumpError{Resource: h.resource, Token: step.token, Mark: h.mark, MaxJump: h.rule.Bound()},
			*jump)
		require.NotErrorIs(t, err, fencing.ErrStale)
	case tokenless:
		require.ErrorIs(t, err, fencing.ErrNoToken, what)
		require.NotErrorIs(t, err, fencing.ErrStale, "nothing is fenced yet")
	}
	for _, g := range h.handles {
		h.holdsIn(t, g, h.resource, h.mark, h.value)
	}
}

// expect returns the outcome of a call, by a naive second version of the rule. It shares no code with package fencing.
func (h *history) expect(enters bool, token uint64) outcome {
	switch mark := uint64(h.mark); {
	case token < mark:
		return stale
	case token == 0 && enters:
		return tokenless
	case h.rule.MaxJump > 0 && token > mark+uint64(h.rule.MaxJump):
		return tooFar
	}
	return admitted
}

// histories compares random histories of several handles with the second version of the rule.
func histories(rule fencing.Rule) func(s *scenario) {
	return func(s *scenario) {
		handles := []Subject{s.open(s.T, rule), s.open(s.T, rule)}
		run := 0
		rapid.Check(s.T, func(t *rapid.T) {
			run++
			resources := map[int]*history{}
			for i := range rapid.IntRange(1, 25).Draw(t, "steps") {
				n := rapid.IntRange(0, 2).Draw(t, "resource")
				if resources[n] == nil {
					resources[n] = &history{scenario: s, resource: fencing.Resource(fmt.Sprintf("run/%d/%d", run, n)), rule: rule,
						handles: handles}
				}
				handle, enters := rapid.IntRange(a, b).Draw(t, "handle"), rapid.Bool().Draw(t, "enter")
				token := rapid.OneOf(rapid.Uint64Range(0, 8), rapid.Uint64Range(0, 120)).Draw(t, "token") +
					uint64(fencing.FloorStep)*rapid.SampledFrom([]uint64{0, 0, 0, 0, 0, 1, 2}).Draw(t, "floor steps")
				want := resources[n].expect(enters, token)
				resources[n].do(t, step{handle, enters, fencing.Token(token), want}, fmt.Sprint(i))
			}
		})
	}
}

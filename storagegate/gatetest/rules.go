package gatetest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

const orders = fencing.Resource("orders")

// bounded is a bound on the jump for tests.
const bounded = fencing.Token(100)

// scripts are the cases that consist of calls one after the other.
var scripts = []struct {
	name  string
	rule  fencing.Rule
	steps []step
}{
	{"two successive holders", fencing.Rule{}, []step{enter(a, 33, admitted), write(a, 33, admitted),
		enter(b, 34, admitted), write(a, 33, stale), write(b, 34, admitted)}},
	{"equal token twice", fencing.Rule{}, slices.Repeat([]step{write(a, 7, admitted), enter(a, 7, admitted)}, 5)},
	{"stale after newer", fencing.Rule{}, append([]step{write(a, 1, admitted), write(b, 100, admitted)},
		below(1, 2, 99)...)},
	{"tokens that differ by floor steps", fencing.Rule{}, floorSteps()},
	{"without a token, before and after the first fence", fencing.Rule{}, []step{enter(a, fencing.None, tokenless),
		write(a, fencing.None, admitted), write(b, fencing.None, admitted), enter(a, 5, admitted),
		write(a, fencing.None, stale), write(b, fencing.None, stale), enter(a, fencing.None, stale),
		enter(b, fencing.None, stale)}},
	{"enter raises the mark before the first read", fencing.Rule{}, []step{write(a, 1, admitted), enter(b, 2, admitted),
		write(a, 1, stale)}},
	{"bound on the jump", fencing.Rule{MaxJump: bounded}, jumps(bounded)},
	{"bound on the jump by default", fencing.Rule{}, jumps(fencing.DefaultMaxJump)},
	{"largest token", fencing.Rule{MaxJump: fencing.Unbounded}, []step{write(a, fencing.MaxToken-1, admitted),
		write(a, fencing.MaxToken, admitted), write(a, fencing.MaxToken-1, stale)}},
}

// below returns calls with older tokens.
func below(tokens ...fencing.Token) (steps []step) {
	for _, token := range tokens {
		steps = append(steps, write(a, token, stale), write(b, token, stale), enter(a, token, stale))
	}
	return steps
}

// floorSteps writes with tokens whose lower 32 bits are equal, or smaller in the
// newer token: after a restore the lock service raises its tokens by exactly
// 2^32.
func floorSteps() []step {
	const token = fencing.Token(33)
	mark, steps := token, []step{write(a, token, admitted)}
	for _, next := range []fencing.Token{
		token + fencing.FloorStep, token - 1 + 2*fencing.FloorStep, 3 * fencing.FloorStep,
	} {
		steps = append(append(steps, write(b, next, admitted)), below(token, mark, next-1, next-fencing.FloorStep)...)
		steps = append(steps, write(a, fencing.None, stale), enter(a, next, admitted))
		mark = next
	}
	return steps
}

// jumps checks a bound, which limits the first token and every later one.
func jumps(bound fencing.Token) []step {
	return []step{write(a, bound+1, tooFar), enter(a, bound+1, tooFar), enter(a, fencing.MaxToken, tooFar),
		write(a, fencing.None, admitted), write(a, bound, admitted), write(b, 2*bound, admitted),
		write(b, 3*bound+1, tooFar), write(b, fencing.MaxToken-1, tooFar), write(b, bound, stale),
		write(a, 2*bound+1, admitted)}
}

func invalid(s *scenario) {
	g := s.handle()
	tooLong := fencing.Resource(strings.Repeat("x", fencing.MaxResourceLen+1))
	for _, name := range []fencing.Resource{"", "a\nb", "a\x00b", "a\xffb", tooLong} {
		for _, token := range []fencing.Token{fencing.None, 1} {
			require.ErrorIs(s, g.Write(s.ctx, name, token, "x"), fencing.ErrInvalidResource, "%q", string(name))
			require.ErrorIs(s, g.Enter(s.ctx, name, token), fencing.ErrInvalidResource, "%q", string(name))
		}
		_, err := g.Mark(s.ctx, name)
		require.ErrorIs(s, err, fencing.ErrInvalidResource, "%q", string(name))
	}
	for _, token := range []fencing.Token{fencing.MaxToken + 1, 1 << 63, 1<<64 - 1} {
		require.ErrorIs(s, g.Write(s.ctx, orders, token, "x"), fencing.ErrInvalidToken, "%d", uint64(token))
		require.ErrorIs(s, g.Enter(s.ctx, orders, token), fencing.ErrInvalidToken, "%d", uint64(token))
	}
	s.holds(g, orders, fencing.None, "")
	require.Zero(s, g.Counts(), "an invalid request is not a decision")
}

// names writes under names that a storage could confuse with each other or
// interpret as syntax.
func names(s *scenario) {
	g := s.handle()
	different := []fencing.Resource{
		"a", "A", "a ", " a", "á", "a\u0301", "ä", "aa", "a/b", "a/../a/b", "a\\b", "a'b", "a\"b", "a`b", "a%b",
		"a_b", "a{b}", "{a}b",
		"a#1", "a?b=c", "a:b", "a*", ".", "..", "/", "-", "NULL", "0", "00", "ß", "ss", "ẞ", "🔒", "🔓", "日本",
		fencing.Resource(strings.Repeat("x", fencing.MaxResourceLen)),
		fencing.Resource(strings.Repeat("x", fencing.MaxResourceLen-1) + "y"),
		fencing.Resource(strings.Repeat("é", fencing.MaxResourceLen/2)),
	}
	for i, name := range different {
		require.NoError(s, g.Write(s.ctx, name, fencing.Token(i+1), fmt.Sprint(i)), "%q", string(name))
	}
	for i, name := range different {
		s.holds(g, name, fencing.Token(i+1), fmt.Sprint(i))
	}
}

func cancelled(s *scenario) {
	g := s.handle()
	require.NoError(s, g.Write(s.ctx, orders, 1, "one"))
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	require.ErrorIs(s, g.Write(ctx, orders, 2, "two"), context.Canceled)
	require.ErrorIs(s, g.Enter(ctx, orders, 2), context.Canceled)
	_, err := g.Mark(ctx, orders)
	require.ErrorIs(s, err, context.Canceled)
	s.holds(g, orders, 1, "one")
	require.Equal(s, storagegate.Counts{Admitted: 1}, g.Counts())
}

func reopened(s *scenario) {
	require.NoError(s, s.handle().Write(s.ctx, orders, 9, "nine"))
	later := s.handle()
	s.holds(later, orders, 9, "nine")
	s.refused(later.Write(s.ctx, orders, 8, "eight"), orders, 8, 9)
}

func counters(s *scenario) {
	g := s.open(s.T, fencing.Rule{MaxJump: 100})
	var reported []storagegate.Decision
	g.Audit(func(_ context.Context, d storagegate.Decision) { reported = append(reported, d) })
	require.Zero(s, g.Counts())

	_ = g.Write(s.ctx, orders, fencing.None, "free")
	_ = g.Enter(s.ctx, orders, fencing.None) // not a decision: nothing is fenced yet
	_ = g.Enter(s.ctx, orders, 10)
	_ = g.Write(s.ctx, orders, 11, "x")
	_ = g.Write(s.ctx, orders, 9, "x")
	_ = g.Enter(s.ctx, orders, 10)
	_ = g.Write(s.ctx, orders, fencing.None, "x")
	_ = g.Write(s.ctx, orders, 112, "x")
	_ = g.Write(s.ctx, "", 112, "x") // invalid

	require.Equal(s, []storagegate.Decision{
		{Resource: orders, Token: 0, Mark: 0, Outcome: storagegate.Admitted},
		{Resource: orders, Token: 10, Mark: 10, Outcome: storagegate.Admitted},
		{Resource: orders, Token: 11, Mark: 11, Outcome: storagegate.Admitted},
		{Resource: orders, Token: 9, Mark: 11, Outcome: storagegate.Stale},
		{Resource: orders, Token: 10, Mark: 11, Outcome: storagegate.Stale},
		{Resource: orders, Token: 0, Mark: 11, Outcome: storagegate.Tokenless},
		{Resource: orders, Token: 112, Mark: 11, Outcome: storagegate.JumpExceeded},
	}, reported)
	require.Equal(s, storagegate.Counts{Admitted: 3, Stale: 2, Tokenless: 1, JumpExceeded: 1}, g.Counts())
}

func manyResources(s *scenario) {
	const count, writers = 1_000, 8
	g := s.handle()
	name := func(i int) fencing.Resource { return fencing.Resource(fmt.Sprintf("order/%d", i)) }
	token := func(i int) fencing.Token { return fencing.Token(i%97 + 2) }
	s.together(writers, func(w int) error {
		for i := w; i < count; i += writers {
			if err := g.Write(s.ctx, name(i), token(i), fmt.Sprint(i)); err != nil {
				return fmt.Errorf("write %q: %w", string(name(i)), err)
			}
		}
		return nil
	})
	for i := 0; i < count; i += 101 {
		s.holds(g, name(i), token(i), fmt.Sprint(i))
		s.refused(g.Write(s.ctx, name(i), token(i)-1, "stale"), name(i), token(i)-1, token(i))
	}
	require.Equal(s, uint64(count), g.Counts().Admitted)
}

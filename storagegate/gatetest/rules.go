package gatetest

import (
	"context"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

const orders = fencing.Resource("orders")

func successiveHolders(s *scenario) {
	a, b := s.handle(), s.handle()
	s.holds(a, orders, fencing.None, "")
	require.NoError(s, a.Enter(s.ctx, orders, 33))
	s.holds(b, orders, 33, "")
	require.NoError(s, a.Write(s.ctx, orders, 33, "a"))
	s.holds(b, orders, 33, "a")
	require.NoError(s, b.Enter(s.ctx, orders, 34))
	s.refused(a.Write(s.ctx, orders, 33, "a again"), orders, 33, 34)
	s.holds(b, orders, 34, "a")
	require.NoError(s, b.Write(s.ctx, orders, 34, "b"))
	s.holds(a, orders, 34, "b")
}

func equalTwice(s *scenario) {
	g := s.handle()
	for i := range 5 {
		value := fmt.Sprint("write ", i)
		require.NoError(s, g.Write(s.ctx, orders, 7, value), "the holder's next write has the same token")
		s.holds(g, orders, 7, value)
		require.NoError(s, g.Enter(s.ctx, orders, 7), "entering twice is harmless")
	}
}

func staleAfterNewer(s *scenario) {
	a, b := s.handle(), s.handle()
	require.NoError(s, a.Write(s.ctx, orders, 1, "first"))
	require.NoError(s, b.Write(s.ctx, orders, 100, "newest"))
	for _, token := range []fencing.Token{1, 2, 99} {
		s.refused(a.Write(s.ctx, orders, token, "stale"), orders, token, 100)
		s.refused(b.Write(s.ctx, orders, token, "stale"), orders, token, 100)
		s.refused(a.Enter(s.ctx, orders, token), orders, token, 100)
	}
	s.holds(a, orders, 100, "newest")
	require.NoError(s, a.Write(s.ctx, "invoices", 1, "other"), "every resource has its own mark")
	s.holds(b, "invoices", 1, "other")
}

// floorSteps writes with tokens whose lower 32 bits are equal, or smaller in the
// newer token: after a restore the lock service raises its tokens by exactly
// 2^32.
func floorSteps(s *scenario) {
	a, b := s.handle(), s.handle()
	const token = fencing.Token(33)
	mark := token
	require.NoError(s, a.Write(s.ctx, orders, mark, "before the restore"))
	for _, next := range []fencing.Token{
		token + fencing.FloorStep, token - 1 + 2*fencing.FloorStep, 3 * fencing.FloorStep,
	} {
		value := next.String()
		require.NoError(s, b.Write(s.ctx, orders, next, value))
		for _, older := range []fencing.Token{token, mark, next - 1, next - fencing.FloorStep} {
			s.refused(a.Write(s.ctx, orders, older, "stale"), orders, older, next)
			s.refused(a.Enter(s.ctx, orders, older), orders, older, next)
		}
		s.refused(a.Write(s.ctx, orders, fencing.None, "no token"), orders, fencing.None, next)
		require.NoError(s, a.Enter(s.ctx, orders, next))
		s.holds(b, orders, next, value)
		mark = next
	}
}

func tokenless(s *scenario) {
	a, b := s.handle(), s.handle()
	err := a.Enter(s.ctx, orders, fencing.None)
	require.ErrorIs(s, err, fencing.ErrNoToken, "entering requires a token")
	require.NotErrorIs(s, err, fencing.ErrStale, "nothing is fenced yet")

	require.NoError(s, a.Write(s.ctx, orders, fencing.None, "free"), "a resource that was never fenced needs no token")
	require.NoError(s, b.Write(s.ctx, orders, fencing.None, "free again"))
	s.holds(a, orders, fencing.None, "free again")

	require.NoError(s, a.Enter(s.ctx, orders, 5))
	for _, g := range []Subject{a, b} {
		err := g.Write(s.ctx, orders, fencing.None, "no token")
		s.refused(err, orders, fencing.None, 5)
		require.ErrorIs(s, err, fencing.ErrNoToken)
		s.refused(g.Enter(s.ctx, orders, fencing.None), orders, fencing.None, 5)
	}
	s.holds(b, orders, 5, "free again")
}

func enterFirst(s *scenario) {
	a, b := s.handle(), s.handle()
	require.NoError(s, a.Write(s.ctx, orders, 1, "one"))
	require.NoError(s, b.Enter(s.ctx, orders, 2))
	s.holds(a, orders, 2, "one")
	s.refused(a.Write(s.ctx, orders, 1, "late"), orders, 1, 2)
	s.holds(b, orders, 2, "one")
}

// bounds checks the bound of a rule, which limits the first token and every later
// one.
func bounds(rule fencing.Rule) func(s *scenario) {
	return func(s *scenario) {
		bound := rule.Bound()
		a, b := s.open(s.T, rule), s.open(s.T, rule)
		jumps := func(err error, token, mark fencing.Token) {
			s.Helper()
			var jump *fencing.JumpError
			require.ErrorAs(s, err, &jump)
			require.Equal(s, fencing.JumpError{Resource: orders, Token: token, Mark: mark, MaxJump: bound}, *jump)
			require.NotErrorIs(s, err, fencing.ErrStale)
		}
		jumps(a.Write(s.ctx, orders, bound+1, "too far"), bound+1, 0)
		jumps(a.Enter(s.ctx, orders, bound+1), bound+1, 0)
		jumps(a.Enter(s.ctx, orders, fencing.MaxToken), fencing.MaxToken, 0)
		s.holds(a, orders, fencing.None, "")
		require.NoError(s, a.Write(s.ctx, orders, fencing.None, "free"))
		require.NoError(s, a.Write(s.ctx, orders, bound, "at the bound"))
		require.NoError(s, b.Write(s.ctx, orders, 2*bound, "and again"))
		jumps(b.Write(s.ctx, orders, 3*bound+1, "too far"), 3*bound+1, 2*bound)
		jumps(b.Write(s.ctx, orders, fencing.MaxToken-1, "too far"), fencing.MaxToken-1, 2*bound)
		s.refused(b.Write(s.ctx, orders, bound, "stale"), orders, bound, 2*bound)
		s.holds(a, orders, 2*bound, "and again")
		require.NoError(s, a.Write(s.ctx, orders, 2*bound+1, "not locked out"))
	}
}

func largestToken(s *scenario) {
	g := s.open(s.T, fencing.Rule{MaxJump: fencing.Unbounded})
	require.NoError(s, g.Write(s.ctx, orders, fencing.MaxToken-1, "last but one"))
	require.NoError(s, g.Write(s.ctx, orders, fencing.MaxToken, "last"))
	s.refused(g.Write(s.ctx, orders, fencing.MaxToken-1, "stale by one"), orders, fencing.MaxToken-1, fencing.MaxToken)
	s.holds(g, orders, fencing.MaxToken, "last")
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

package gatetest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

const door = fencing.Resource("door")

func story(s *stage) {
	a, b := s.handle(), s.handle()
	s.holds(a, door, fencing.None, "")
	require.NoError(s, a.Enter(s.ctx, door, 33))
	s.holds(b, door, 33, "")
	require.NoError(s, a.Write(s.ctx, door, 33, "a"))
	s.holds(b, door, 33, "a")
	require.NoError(s, b.Enter(s.ctx, door, 34))
	s.refused(a.Write(s.ctx, door, 33, "a again"), door, 33, 34)
	s.holds(b, door, 34, "a")
	require.NoError(s, b.Write(s.ctx, door, 34, "b"))
	s.holds(a, door, 34, "b")
}

func equalTwice(s *stage) {
	g := s.handle()
	for i := range 5 {
		value := fmt.Sprint("write ", i)
		require.NoError(s, g.Write(s.ctx, door, 7, value), "the holder's next write carries the same token")
		s.holds(g, door, 7, value)
		require.NoError(s, g.Enter(s.ctx, door, 7), "to enter twice is harmless")
	}
}

func staleAfterNewer(s *stage) {
	a, b := s.handle(), s.handle()
	require.NoError(s, a.Write(s.ctx, door, 1, "first"))
	require.NoError(s, b.Write(s.ctx, door, 100, "newest"))
	for _, token := range []fencing.Token{1, 2, 99} {
		s.refused(a.Write(s.ctx, door, token, "stale"), door, token, 100)
		s.refused(b.Write(s.ctx, door, token, "stale"), door, token, 100)
		s.refused(a.Enter(s.ctx, door, token), door, token, 100)
	}
	s.holds(a, door, 100, "newest")
	require.NoError(s, a.Write(s.ctx, "window", 1, "other"), "marks of other resources are their own")
	s.holds(b, "window", 1, "other")
}

func sticky(s *stage) {
	a, b := s.handle(), s.handle()
	err := a.Enter(s.ctx, door, fencing.None)
	require.ErrorIs(s, err, fencing.ErrNoToken, "to enter always needs a token")
	require.NotErrorIs(s, err, fencing.ErrStale, "nothing is fenced yet")

	require.NoError(s, a.Write(s.ctx, door, fencing.None, "free"), "never fenced: no token is needed")
	require.NoError(s, b.Write(s.ctx, door, fencing.None, "free again"))
	s.holds(a, door, fencing.None, "free again")

	require.NoError(s, a.Enter(s.ctx, door, 5))
	for _, g := range []Subject{a, b} {
		err := g.Write(s.ctx, door, fencing.None, "no token")
		s.refused(err, door, fencing.None, 5)
		require.ErrorIs(s, err, fencing.ErrNoToken)
		s.refused(g.Enter(s.ctx, door, fencing.None), door, fencing.None, 5)
	}
	s.holds(b, door, 5, "free again")
}

func enterFirst(s *stage) {
	a, b := s.handle(), s.handle()
	require.NoError(s, a.Write(s.ctx, door, 1, "one"))
	require.NoError(s, b.Enter(s.ctx, door, 2))
	s.holds(a, door, 2, "one")
	s.refused(a.Write(s.ctx, door, 1, "late"), door, 1, 2)
	s.holds(b, door, 2, "one")
}

func bound(s *stage) {
	rule := fencing.Rule{MaxJump: 100}
	a, b := s.open(s.T, rule), s.open(s.T, rule)
	jumps := func(err error, token, mark fencing.Token) {
		s.Helper()
		var jump *fencing.JumpError
		require.ErrorAs(s, err, &jump)
		require.Equal(s, fencing.JumpError{Resource: door, Token: token, Mark: mark, MaxJump: 100}, *jump)
		require.NotErrorIs(s, err, fencing.ErrStale)
	}
	jumps(a.Write(s.ctx, door, 101, "absurd"), 101, 0)
	jumps(a.Enter(s.ctx, door, fencing.MaxToken), fencing.MaxToken, 0)
	s.holds(a, door, fencing.None, "")
	require.NoError(s, a.Write(s.ctx, door, fencing.None, "free"))
	require.NoError(s, a.Write(s.ctx, door, 100, "at the bound"))
	require.NoError(s, b.Write(s.ctx, door, 200, "and again"))
	jumps(b.Write(s.ctx, door, 301, "absurd"), 301, 200)
	jumps(b.Write(s.ctx, door, fencing.MaxToken, "absurd"), fencing.MaxToken, 200)
	s.refused(b.Write(s.ctx, door, 100, "stale"), door, 100, 200)
	s.holds(a, door, 200, "and again")
	require.NoError(s, a.Write(s.ctx, door, 201, "nobody is locked out"))
}

func largestToken(s *stage) {
	g := s.handle()
	require.NoError(s, g.Write(s.ctx, door, fencing.MaxToken-1, "last but one"))
	require.NoError(s, g.Write(s.ctx, door, fencing.MaxToken, "last"))
	s.refused(g.Write(s.ctx, door, fencing.MaxToken-1, "stale by one"), door, fencing.MaxToken-1, fencing.MaxToken)
	s.holds(g, door, fencing.MaxToken, "last")
}

func invalid(s *stage) {
	g := s.handle()
	for _, name := range []fencing.Resource{"", "a\nb", "a\x00b", "a\xffb", fencing.Resource(strings.Repeat("x", fencing.MaxResourceLen+1))} {
		for _, token := range []fencing.Token{fencing.None, 1} {
			require.ErrorIs(s, g.Write(s.ctx, name, token, "x"), fencing.ErrInvalidResource, "%q", string(name))
			require.ErrorIs(s, g.Enter(s.ctx, name, token), fencing.ErrInvalidResource, "%q", string(name))
		}
		_, err := g.Mark(s.ctx, name)
		require.ErrorIs(s, err, fencing.ErrInvalidResource, "%q", string(name))
	}
	for _, token := range []fencing.Token{fencing.MaxToken + 1, 1 << 63, 1<<64 - 1} {
		require.ErrorIs(s, g.Write(s.ctx, door, token, "x"), fencing.ErrInvalidToken, "%d", uint64(token))
		require.ErrorIs(s, g.Enter(s.ctx, door, token), fencing.ErrInvalidToken, "%d", uint64(token))
	}
	s.holds(g, door, fencing.None, "")
	require.Zero(s, g.Counts(), "a request that is not understood is no decision")
}

// names writes under names that a careless storage takes for one another, or
// for something else.
func names(s *stage) {
	g := s.handle()
	different := []fencing.Resource{
		"a", "A", "a ", " a", "á", "a\u0301", "ä", "aa", "a/b", "a/../a/b", "a\\b", "a'b", "a\"b", "a`b", "a%b", "a_b", "a{b}", "{a}b",
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

func cancelled(s *stage) {
	g := s.handle()
	require.NoError(s, g.Write(s.ctx, door, 1, "one"))
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	require.ErrorIs(s, g.Write(ctx, door, 2, "two"), context.Canceled)
	require.ErrorIs(s, g.Enter(ctx, door, 2), context.Canceled)
	_, err := g.Mark(ctx, door)
	require.ErrorIs(s, err, context.Canceled)
	s.holds(g, door, 1, "one")
	require.Equal(s, storagegate.Counts{Admitted: 1}, g.Counts())
}

func reopened(s *stage) {
	require.NoError(s, s.handle().Write(s.ctx, door, 9, "nine"))
	later := s.handle()
	s.holds(later, door, 9, "nine")
	s.refused(later.Write(s.ctx, door, 8, "eight"), door, 8, 9)
}

func counters(s *stage) {
	g := s.open(s.T, fencing.Rule{MaxJump: 100})
	var heard []storagegate.Decision
	g.Audit(func(d storagegate.Decision) { heard = append(heard, d) })
	require.Zero(s, g.Counts())

	_ = g.Write(s.ctx, door, fencing.None, "free")
	_ = g.Enter(s.ctx, door, fencing.None) // no decision: nothing was fenced
	_ = g.Enter(s.ctx, door, 10)
	_ = g.Write(s.ctx, door, 11, "x")
	_ = g.Write(s.ctx, door, 9, "x")
	_ = g.Enter(s.ctx, door, 10)
	_ = g.Write(s.ctx, door, fencing.None, "x")
	_ = g.Write(s.ctx, door, 112, "x")
	_ = g.Write(s.ctx, "", 112, "x") // not understood

	require.Equal(s, []storagegate.Decision{
		{Resource: door, Token: 0, Mark: 0, Outcome: storagegate.Admitted},
		{Resource: door, Token: 10, Mark: 10, Outcome: storagegate.Admitted},
		{Resource: door, Token: 11, Mark: 11, Outcome: storagegate.Admitted},
		{Resource: door, Token: 9, Mark: 11, Outcome: storagegate.Stale},
		{Resource: door, Token: 10, Mark: 11, Outcome: storagegate.Stale},
		{Resource: door, Token: 0, Mark: 11, Outcome: storagegate.Tokenless},
		{Resource: door, Token: 112, Mark: 11, Outcome: storagegate.JumpExceeded},
	}, heard)
	require.Equal(s, storagegate.Counts{Admitted: 3, Stale: 2, Tokenless: 1, JumpExceeded: 1}, g.Counts())
}

func manyResources(s *stage) {
	const count, writers = 10_000, 8
	g := s.handle()
	name := func(i int) fencing.Resource { return fencing.Resource(fmt.Sprintf("order/%d", i)) }
	token := func(i int) fencing.Token { return fencing.Token(i%97 + 2) }
	var all sync.WaitGroup
	failures := make(chan error, writers)
	for w := range writers {
		all.Go(func() {
			for i := w; i < count; i += writers {
				if err := g.Write(s.ctx, name(i), token(i), fmt.Sprint(i)); err != nil {
					failures <- fmt.Errorf("write %q: %w", string(name(i)), err)
					return
				}
			}
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		require.NoError(s, err)
	}
	for i := 0; i < count; i += 101 {
		s.holds(g, name(i), token(i), fmt.Sprint(i))
		s.refused(g.Write(s.ctx, name(i), token(i)-1, "stale"), name(i), token(i)-1, token(i))
	}
	require.Equal(s, uint64(count), g.Counts().Admitted)
}

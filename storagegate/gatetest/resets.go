package gatetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// absurd is a token that no lock service has granted, as far above the first mark
// as the bound on the jump allows.
const absurd = fencing.DefaultMaxJump

// Resetter is a Subject whose marks an operator can lower.
type Resetter interface {
	Subject
	storagegate.Resetter
}

func reset(s *scenario, g Resetter) {
	other := s.handle()
	require.NoError(s, g.Write(s.ctx, orders, 50, "fifty"))
	require.NoError(s, g.Write(s.ctx, orders, absurd, "absurd"))
	s.refused(other.Write(s.ctx, orders, 51, "locked out"), orders, 51, absurd)

	require.ErrorIs(s, g.Reset(s.ctx, "", absurd, 52), fencing.ErrInvalidResource)
	for _, to := range []fencing.Token{fencing.None, absurd, absurd + 1, fencing.MaxToken + 1} {
		require.ErrorIs(s, g.Reset(s.ctx, orders, absurd, to), storagegate.ErrNotLower, "to %d", uint64(to))
	}
	require.ErrorIs(s, g.Reset(s.ctx, orders, 60, 52), storagegate.ErrMarkChanged)
	require.ErrorIs(s, g.Reset(s.ctx, orders, absurd+1, 52), storagegate.ErrMarkChanged)
	require.ErrorIs(s, g.Reset(s.ctx, "invoices", absurd, 52), storagegate.ErrMarkChanged, "a resource without a mark")
	s.holds(other, orders, absurd, "absurd")
	s.holds(other, "invoices", fencing.None, "")

	require.NoError(s, g.Reset(s.ctx, orders, absurd, 52))
	s.holds(other, orders, 52, "absurd")
	for _, earlier := range []fencing.Token{50, 51} {
		s.refused(other.Write(s.ctx, orders, earlier, "stale"), orders, earlier, 52)
		s.refused(g.Enter(s.ctx, orders, earlier), orders, earlier, 52)
	}
	s.refused(g.Write(s.ctx, orders, fencing.None, "no token"), orders, fencing.None, 52)
	require.NoError(s, other.Write(s.ctx, orders, 53, "not locked out"))
	require.ErrorIs(s, g.Reset(s.ctx, orders, absurd, 52), storagegate.ErrMarkChanged,
		"a second reset must not undo a newer token")
	s.holds(g, orders, 53, "not locked out")
}

// resetBesideWriters has holders append to the value, while others enter with
// absurd tokens and operators reset the mark. The tokens of the appended writes
// must never decrease, none of these writes may be lost, and no reset may lower the
// mark below a token that was granted and admitted.
func resetBesideWriters(s *scenario, g Resetter) {
	const writers, operators, resets = 4, 3, 20
	var granted, absurdities, done atomic.Uint64
	grant := func() fencing.Token { return fencing.Token(granted.Add(1)) }
	var applied sync.Map // tokens
	write := func() error {
		token := grant()
		if err := g.Enter(s.ctx, orders, token); err != nil {
			return unlessStale(err)
		}
		value, err := g.Read(s.ctx, orders)
		if err == nil {
			err = g.Write(s.ctx, orders, token, value+token.String()+" ")
		}
		if err != nil {
			return unlessStale(err)
		}
		applied.Store(token.String(), true)
		mark, err := g.Mark(s.ctx, orders)
		if err == nil && token.Newer(mark) {
			err = fmt.Errorf("the mark is %d after token %d was admitted", mark, token)
		}
		return err
	}
	operate := func(causesTrouble bool) error {
		if causesTrouble {
			if err := unlessStale(g.Enter(s.ctx, orders, absurd/2+fencing.Token(absurdities.Add(1)))); err != nil {
				return err
			}
		}
		mark, err := g.Mark(s.ctx, orders)
		if err != nil || mark <= absurd/2 {
			return err
		}
		err = g.Reset(s.ctx, orders, mark, grant())
		if errors.Is(err, storagegate.ErrMarkChanged) {
			return nil
		}
		done.Add(1)
		return err
	}
	s.together(writers+operators, func(i int) (err error) {
		for done.Load() < resets && err == nil {
			if i < writers {
				err = write()
			} else {
				err = operate(i == writers)
			}
		}
		if err != nil {
			done.Store(resets) // ends the others
		}
		return err
	})
	s.ordered(g, &applied)
}

// ordered requires the value to be a list of increasing tokens with all applied
// ones.
func (s *scenario) ordered(g Subject, applied *sync.Map) {
	s.Helper()
	value, err := g.Read(s.ctx, orders)
	require.NoError(s, err)
	last := fencing.None
	written := map[string]bool{}
	for _, word := range strings.Fields(value) {
		token, err := fencing.ParseToken(word)
		require.NoError(s, err)
		require.True(s, token.Newer(last), "token %d was admitted after %d: %s", token, last, value)
		last, written[word] = token, true
	}
	applied.Range(func(token, _ any) bool {
		require.True(s, written[token.(string)], "the write of token %s is lost: %s", token, value)
		return true
	})
}

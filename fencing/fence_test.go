package fencing_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
)

const orders = fencing.Resource("orders")

func TestFenceAdmitsAndRefuses(t *testing.T) {
	var f fencing.Fence
	require.NoError(t, f.Admit(orders, fencing.None), "a resource that was never fenced admits a write without a token")
	require.Equal(t, fencing.None, f.Mark(orders))

	require.NoError(t, f.Admit(orders, 33))
	require.NoError(t, f.Admit(orders, 33), "the holder's second write has the same token")
	require.NoError(t, f.Enter(orders, 34), "the next holder enters before it reads")
	require.Equal(t, fencing.Token(34), f.Mark(orders))

	err := f.Admit(orders, 33)
	require.ErrorIs(t, err, fencing.ErrStale)
	require.NotErrorIs(t, err, fencing.ErrNoToken)
	var stale *fencing.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, fencing.StaleError{Resource: orders, Token: 33, Mark: 34}, *stale)
	require.Equal(t, fencing.Token(34), f.Mark(orders), "a refusal changes nothing")

	require.NoError(t, f.Admit("invoices", 1), "every resource has its own mark")
}

// The lock service raises tokens by exactly 2^32 after a restore, so the lower
// 32 bits of an old and a new token can be equal.
func TestTokenOneFloorStepBelowTheMarkIsStale(t *testing.T) {
	const token = fencing.Token(33)
	for _, mark := range []fencing.Token{token + fencing.FloorStep, token + 5*fencing.FloorStep,
		token - 1 + fencing.FloorStep} {
		require.ErrorIs(t, fencing.Rule{}.Admit(orders, mark, token), fencing.ErrStale, "mark %d", mark)
		require.ErrorIs(t, fencing.Rule{}.Enter(orders, mark, token), fencing.ErrStale, "mark %d", mark)
		require.NoError(t, fencing.Rule{}.Admit(orders, token, mark), "mark %d", mark)
		require.True(t, mark.Newer(token))

		var f fencing.Fence
		require.NoError(t, f.Admit(orders, mark))
		require.ErrorIs(t, f.Admit(orders, token), fencing.ErrStale)
		require.ErrorIs(t, f.Admit(orders, fencing.None), fencing.ErrNoToken)
		require.Equal(t, mark, f.Mark(orders))
	}
	require.ErrorIs(t, fencing.Rule{}.Admit(orders, fencing.FloorStep, fencing.None), fencing.ErrNoToken)
}

func TestFencedResourceRequiresAToken(t *testing.T) {
	var f fencing.Fence
	require.NoError(t, f.Enter(orders, 5))
	for _, call := range []func(fencing.Resource, fencing.Token) error{f.Admit, f.Enter} {
		err := call(orders, fencing.None)
		require.ErrorIs(t, err, fencing.ErrStale)
		require.ErrorIs(t, err, fencing.ErrNoToken)
		require.ErrorContains(t, err, "acquire its lease")
	}
}

func TestEnterRequiresAToken(t *testing.T) {
	var f fencing.Fence
	err := f.Enter(orders, fencing.None)
	require.ErrorIs(t, err, fencing.ErrNoToken)
	require.NotErrorIs(t, err, fencing.ErrStale, "nothing is fenced yet")
}

func TestEnterRefusesOlderWrites(t *testing.T) {
	var f fencing.Fence
	require.NoError(t, f.Admit(orders, 1))
	require.NoError(t, f.Enter(orders, 2), "holder 2 is about to read")
	require.ErrorIs(t, f.Admit(orders, 1), fencing.ErrStale,
		"otherwise holder 2 would overwrite a write that it has not read")
}

func TestMaxJump(t *testing.T) {
	f := fencing.NewFence(fencing.Rule{MaxJump: 100})
	err := f.Admit(orders, 101)
	require.ErrorIs(t, err, fencing.ErrJump)
	require.NotErrorIs(t, err, fencing.ErrStale)
	var jump *fencing.JumpError
	require.ErrorAs(t, err, &jump)
	require.Equal(t, fencing.JumpError{Resource: orders, Token: 101, Mark: 0, MaxJump: 100}, *jump)

	require.NoError(t, f.Admit(orders, 100))
	require.NoError(t, f.Admit(orders, 200))
	require.ErrorIs(t, f.Enter(orders, fencing.MaxToken), fencing.ErrJump)
	require.Equal(t, fencing.Token(200), f.Mark(orders), "a refused token must not move the mark")
	require.NoError(t, f.Admit(orders, 201))

	unbounded := fencing.NewFence(fencing.Rule{MaxJump: fencing.Unbounded})
	require.NoError(t, unbounded.Admit(orders, fencing.MaxToken))
}

func TestDefaultMaxJumpAllowsFloorSteps(t *testing.T) {
	var rule fencing.Rule
	require.NoError(t, rule.Admit(orders, 0, fencing.DefaultMaxJump))
	require.ErrorIs(t, rule.Admit(orders, 0, fencing.DefaultMaxJump+1), fencing.ErrJump,
		"the zero value has the default bound")
	require.NoError(t, rule.Admit(orders, 0, 255*fencing.FloorStep))
	const unixMillis = 1_790_000_000_000
	require.ErrorIs(t, rule.Admit(orders, 5000, unixMillis), fencing.ErrJump)
}

func TestFenceRefusesInvalidNamesAndTokens(t *testing.T) {
	var f fencing.Fence
	require.ErrorIs(t, f.Admit("", 1), fencing.ErrInvalidResource)
	require.ErrorIs(t, f.Admit("a\n", fencing.None), fencing.ErrInvalidResource)
	require.ErrorIs(t, f.Admit(orders, fencing.MaxToken+1), fencing.ErrInvalidToken)
	require.NoError(t, f.Admit(orders, 1))
	require.ErrorIs(t, f.Admit(orders, fencing.MaxToken+1), fencing.ErrInvalidToken)
	require.Equal(t, fencing.None, f.Mark(""))
}

// The oracle keeps every admitted token and compares with all of them.
func TestFenceAgreesWithAnOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := fencing.Token(rapid.SampledFrom([]uint64{0, 1, 10}).Draw(t, "bound"))
		f := fencing.NewFence(fencing.Rule{MaxJump: bound})
		admitted := map[fencing.Resource][]fencing.Token{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			r := rapid.SampledFrom([]fencing.Resource{"a", "b", "c"}).Draw(t, "resource")
			token := fencing.Token(rapid.Uint64Range(0, 25).Draw(t, "token")) +
				fencing.FloorStep*fencing.Token(rapid.SampledFrom([]uint64{0, 0, 0, 1, 2}).Draw(t, "floor steps"))
			enter := rapid.Bool().Draw(t, "enter")

			fits, largest := true, fencing.None
			for _, earlier := range admitted[r] {
				fits = fits && token >= earlier
				largest = max(largest, earlier)
			}
			// Without a bound the default applies, which these tokens do not reach.
			tooFar := fits && bound != 0 && token > largest+bound
			missing := enter && token == fencing.None
			want := fits && !tooFar && !missing

			call := f.Admit
			if enter {
				call = f.Enter
			}
			err := call(r, token)
			require.Equal(t, want, err == nil, "%v %d: %v", r, token, err)
			require.Equal(t, tooFar, errors.Is(err, fencing.ErrJump))
			if want && token != fencing.None {
				admitted[r] = append(admitted[r], token)
				largest = max(largest, token)
			}
			require.Equal(t, largest, f.Mark(r))
		}
	})
}

// Each writer records admitted tokens in the critical section of its resource.
// The recorded tokens must never decrease.
func TestAdmittedTokensNeverDecrease(t *testing.T) {
	var f fencing.Fence
	const writers, writes, resources = 8, 2000, 3
	var mu [resources]sync.Mutex
	var admitted [resources][]fencing.Token
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range writes {
				n := i % resources
				token := fencing.Token(i + w + 1)
				mu[n].Lock()
				if f.Admit(fencing.Resource(fmt.Sprint("r", n)), token) == nil {
					admitted[n] = append(admitted[n], token)
				}
				mu[n].Unlock()
			}
		})
	}
	wg.Wait()
	for n := range admitted {
		require.IsNonDecreasing(t, admitted[n])
		require.Equal(t, admitted[n][len(admitted[n])-1], f.Mark(fencing.Resource(fmt.Sprint("r", n))))
	}
}

// Several goroutines add many more resources than a new table holds. No mark may
// be lost or duplicated when a table grows.
func TestFenceWithManyResources(t *testing.T) {
	var f fencing.Fence
	const resources = 20_000
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range resources {
				_ = f.Admit(fencing.Resource(fmt.Sprint(i)), fencing.Token(i+w+1))
			}
		})
	}
	wg.Wait()
	for i := range resources {
		require.Equal(t, fencing.Token(i+4), f.Mark(fencing.Resource(fmt.Sprint(i))))
	}
}

// In each round two writers race for the mark without a lock around Admit. The
// smaller token must not overwrite the larger one.
func TestMarkIsTheLargestAdmitted(t *testing.T) {
	var f fencing.Fence
	var arrived, left, lowered atomic.Int64
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for round := range 2_000 {
				barrier(&arrived, round)
				_ = f.Admit(orders, fencing.Token(2*round+w+1))
				barrier(&left, round)
				if f.Mark(orders) < fencing.Token(2*round+2) {
					lowered.Add(1) // continue, because the other goroutine waits at the barrier
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, lowered.Load(), "how often the mark was below the largest admitted token")
}

// barrier releases two goroutines at the same time.
func barrier(count *atomic.Int64, round int) {
	count.Add(1)
	for spins := 1; count.Load() < int64(2*round+2); spins++ {
		if spins%1000 == 0 {
			runtime.Gosched()
		}
	}
}

func TestAdmitDoesNotAllocate(t *testing.T) {
	var f fencing.Fence
	token := fencing.Token(1)
	require.NoError(t, f.Admit(orders, token))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		token++
		for range 2 { // the first call raises the mark, the second equals it
			if f.Admit(orders, token) != nil {
				t.Fail()
			}
		}
	}))
}

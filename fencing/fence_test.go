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

const door = fencing.Resource("door")

func TestFenceStory(t *testing.T) {
	var f fencing.Fence
	require.NoError(t, f.Admit(door, fencing.None), "never fenced: a write without a token passes")
	require.Equal(t, fencing.None, f.Mark(door))

	require.NoError(t, f.Admit(door, 33))
	require.NoError(t, f.Admit(door, 33), "the holder's second write carries the same token")
	require.NoError(t, f.Enter(door, 34), "the next holder enters before it reads")
	require.Equal(t, fencing.Token(34), f.Mark(door))

	err := f.Admit(door, 33)
	require.ErrorIs(t, err, fencing.ErrStale)
	require.NotErrorIs(t, err, fencing.ErrNoToken)
	var stale *fencing.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, fencing.StaleError{Resource: door, Token: 33, Mark: 34}, *stale)
	require.Equal(t, fencing.Token(34), f.Mark(door), "a refusal changes nothing")

	require.NoError(t, f.Admit("window", 1), "marks of other resources are their own")
}

func TestFenceIsSticky(t *testing.T) {
	var f fencing.Fence
	require.NoError(t, f.Enter(door, 5))
	for _, call := range []func(fencing.Resource, fencing.Token) error{f.Admit, f.Enter} {
		err := call(door, fencing.None)
		require.ErrorIs(t, err, fencing.ErrStale)
		require.ErrorIs(t, err, fencing.ErrNoToken)
		require.ErrorContains(t, err, "acquire its lease")
	}
}

func TestEnterNeedsAToken(t *testing.T) {
	var f fencing.Fence
	err := f.Enter(door, fencing.None)
	require.ErrorIs(t, err, fencing.ErrNoToken)
	require.NotErrorIs(t, err, fencing.ErrStale, "nothing is fenced yet")
}

func TestEnterStopsAStaleWriteBeforeTheFirstWrite(t *testing.T) {
	var f fencing.Fence
	require.NoError(t, f.Admit(door, 1))
	require.NoError(t, f.Enter(door, 2), "holder 2 is about to read")
	require.ErrorIs(t, f.Admit(door, 1), fencing.ErrStale, "else holder 2 would overwrite what it has not read")
}

func TestBoundOnTheJump(t *testing.T) {
	f := fencing.NewFence(fencing.Rule{MaxJump: 100})
	err := f.Admit(door, 101)
	require.ErrorIs(t, err, fencing.ErrJump)
	require.NotErrorIs(t, err, fencing.ErrStale)
	var jump *fencing.JumpError
	require.ErrorAs(t, err, &jump)
	require.Equal(t, fencing.JumpError{Resource: door, Token: 101, Mark: 0, MaxJump: 100}, *jump)

	require.NoError(t, f.Admit(door, 100))
	require.NoError(t, f.Admit(door, 200))
	require.ErrorIs(t, f.Enter(door, fencing.MaxToken), fencing.ErrJump)
	require.Equal(t, fencing.Token(200), f.Mark(door), "the absurd token locked nobody out")
	require.NoError(t, f.Admit(door, 201))

	unbounded := fencing.NewFence(fencing.Rule{})
	require.NoError(t, unbounded.Admit(door, fencing.MaxToken))
}

func TestDefaultMaxJumpLeavesRoomForRestores(t *testing.T) {
	rule := fencing.Rule{MaxJump: fencing.DefaultMaxJump}
	require.NoError(t, rule.Admit(door, 0, 255*fencing.FloorStep))
	const thisYearInMillis = 1_790_000_000_000
	require.ErrorIs(t, rule.Admit(door, 5000, thisYearInMillis), fencing.ErrJump)
}

func TestFenceRefusesWhatIsNoNameOrToken(t *testing.T) {
	var f fencing.Fence
	require.ErrorIs(t, f.Admit("", 1), fencing.ErrInvalidResource)
	require.ErrorIs(t, f.Admit("a\n", fencing.None), fencing.ErrInvalidResource)
	require.ErrorIs(t, f.Admit(door, fencing.MaxToken+1), fencing.ErrInvalidToken)
	require.NoError(t, f.Admit(door, 1))
	require.ErrorIs(t, f.Admit(door, fencing.MaxToken+1), fencing.ErrInvalidToken)
	require.Equal(t, fencing.None, f.Mark(""))
}

// The oracle keeps every admitted token and looks at all of them each time.
func TestFenceAgreesWithAnOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := fencing.Token(rapid.SampledFrom([]uint64{0, 1, 10}).Draw(t, "bound"))
		f := fencing.NewFence(fencing.Rule{MaxJump: bound})
		admitted := map[fencing.Resource][]fencing.Token{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			r := rapid.SampledFrom([]fencing.Resource{"a", "b", "c"}).Draw(t, "resource")
			token := fencing.Token(rapid.Uint64Range(0, 25).Draw(t, "token"))
			enter := rapid.Bool().Draw(t, "enter")

			fits, largest := true, fencing.None
			for _, earlier := range admitted[r] {
				fits = fits && token >= earlier
				largest = max(largest, earlier)
			}
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

// Each writer logs, inside the critical section that its admission guards, the
// order in which tokens passed. Whatever the schedule, it must never go down.
func TestFenceUnderConcurrency(t *testing.T) {
	var f fencing.Fence
	const writers, writes, resources = 8, 2000, 3
	var mu [resources]sync.Mutex
	var passed [resources][]fencing.Token
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range writes {
				n := i % resources
				token := fencing.Token(i + w + 1)
				mu[n].Lock()
				if f.Admit(fencing.Resource(fmt.Sprint("r", n)), token) == nil {
					passed[n] = append(passed[n], token)
				}
				mu[n].Unlock()
			}
		})
	}
	wg.Wait()
	for n := range passed {
		require.IsNonDecreasing(t, passed[n])
		require.Equal(t, passed[n][len(passed[n])-1], f.Mark(fencing.Resource(fmt.Sprint("r", n))))
	}
}

// Many more resources than a table starts with, added from all sides: none may
// be lost when a table grows, and none may get two marks.
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

// No lock around Admit here: in each round two writers meet and race for the
// mark. A slower one with the smaller token must not overwrite the larger.
func TestMarkIsTheLargestAdmitted(t *testing.T) {
	var f fencing.Fence
	var arrived, left, lowered atomic.Int64
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for round := range 20_000 {
				meet(&arrived, round)
				_ = f.Admit(door, fencing.Token(2*round+w+1))
				meet(&left, round)
				if f.Mark(door) < fencing.Token(2*round+2) {
					lowered.Add(1) // and go on: the other one waits
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, lowered.Load(), "times that the mark was below the largest admitted token")
}

// meet lets two goroutines go on at the same moment.
func meet(count *atomic.Int64, round int) {
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
	require.NoError(t, f.Admit(door, token))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		token++
		for range 2 { // raises the mark, then equals it
			if f.Admit(door, token) != nil {
				t.Fail()
			}
		}
	}))
}

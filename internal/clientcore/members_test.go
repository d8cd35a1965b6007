package clientcore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

var errRefused = errors.New("connection refused")

func TestMembers(t *testing.T) {
	m := clientcore.NewMembers([]string{"a", "b", "c"})
	now := engine.NewInstant(time.Unix(1000, 0), time.Hour)
	turns := func() (all []string) {
		for from := range 4 {
			address, after := m.Next(now, from)
			require.Greater(t, after, from)
			all = append(all, address)
		}
		return all
	}
	require.Equal(t, []string{"a", "b", "c", "a"}, turns())
	m.FellSilent(now, "b")
	require.Equal(t, []string{"a", "c", "c", "a"}, turns())
	require.True(t, m.Avoids(now, "b"))
	now = now.Add(500 * time.Millisecond)
	m.FellSilent(now, "a")
	m.Connected(now, now, "c", errRefused, false)
	require.Equal(t, []string{"b", "b", "b", "b"}, turns(), "all have failed: the one whose failure is the longest ago")
	require.False(t, m.Avoids(now, "c"), "it has answered: a redirect to it costs nothing")
	m.Connected(now, now, "b", nil, false)
	require.True(t, m.Avoids(now, "b"), "a connection is no answer")
	m.Answered("b")
	require.False(t, m.Avoids(now, "b"))
	now = now.Add(time.Second)
	require.Equal(t, []string{"a", "b", "c", "a"}, turns())
	m.Connected(now, now, "c", context.Canceled, true)
	require.Equal(t, []string{"a", "b", "c", "a"}, turns(), "the caller left before the member could answer")
}

func TestConnectTime(t *testing.T) {
	m := clientcore.NewMembers([]string{"a"})
	now := engine.NewInstant(time.Unix(1000, 0), time.Hour)
	try := func(took time.Duration, err error) {
		began := now
		now = now.Add(took)
		m.Connected(now, began, "a", err, false)
	}
	for _, limit := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 2 * time.Second} {
		require.Equal(t, limit, m.ConnectTime(now, "a"))
		try(limit, context.DeadlineExceeded)
		require.True(t, m.Avoids(now, "a"))
	}
	try(time.Millisecond, errRefused)
	require.Equal(t, 2*time.Second, m.ConnectTime(now, "a"))
	now = now.Add(29 * time.Second)
	require.Equal(t, 2*time.Second, m.ConnectTime(now, "a"))
	now = now.Add(time.Second)
	require.Equal(t, 500*time.Millisecond, m.ConnectTime(now, "a"), "a member that is down for long costs little")

	try(900*time.Millisecond, nil)
	m.Answered("a")
	now = now.Add(time.Hour)
	require.Equal(t, 2*time.Second, m.ConnectTime(now, "a"), "it gets the time that it needs")
	try(time.Millisecond, nil)
	require.Equal(t, 500*time.Millisecond, m.ConnectTime(now, "a"))
}

// modelMember is what the events so far say about a member, written down in another way than
// the code does.
type modelMember struct {
	failed  time.Duration // the time of the last failure, below 0 if it has answered since
	silent  bool
	needed  time.Duration // by the last connection that succeeded
	tooSlow int           // tries in a row that were too slow
}

// Whatever happens, the member that is asked next is one that did not fail a moment ago if there
// is one, each member gets its turn, and a member gets the time that it needs.
func TestMembersRandomly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "members")
		model := map[string]*modelMember{}
		var names []string
		for i := range n {
			name := fmt.Sprint("member-", i)
			names, model[name] = append(names, name), &modelMember{failed: -1}
		}
		m := clientcore.NewMembers(names)
		start := engine.NewInstant(time.Unix(1000, 0), time.Hour)
		elapsed, from := time.Duration(0), 0
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			elapsed += time.Duration(rapid.SampledFrom([]int{0, 1, 400, 1000, 5000}).Draw(t, "pause")) * time.Millisecond
			now := start.Add(elapsed)
			name, after := m.Next(now, from)
			require.Equal(t, expected(model, names, elapsed, from), name)
			require.Equal(t, name, names[(after-1)%n])
			from = after
			limit := m.ConnectTime(now, name)
			known := model[name]
			if known.failed >= 0 && elapsed-known.failed >= 30*time.Second { // that is forgotten
				require.Equal(t, 500*time.Millisecond, limit)
				known.needed, known.tooSlow = 0, 0
			}
			require.GreaterOrEqual(t, limit, min(known.needed, 2*time.Second))
			require.LessOrEqual(t, limit, 2*time.Second)
			if known.tooSlow > 1 {
				require.Equal(t, 2*time.Second, limit)
			}

			switch rapid.SampledFrom([]string{"slow", "refused", "left", "silent", "answers"}).Draw(t, "outcome") {
			case "slow":
				elapsed += limit
				m.Connected(start.Add(elapsed), now, name, context.DeadlineExceeded, false)
				*known = modelMember{failed: elapsed, silent: true, tooSlow: known.tooSlow + 1}
			case "refused":
				m.Connected(now, now, name, errRefused, false)
				known.failed, known.silent = elapsed, false
			case "left":
				elapsed += 200 * time.Millisecond
				m.Connected(start.Add(elapsed), now, name, context.Canceled, true)
			case "silent":
				m.Connected(now, now, name, nil, false)
				elapsed += 2 * time.Second
				m.FellSilent(start.Add(elapsed), name)
				*known = modelMember{failed: elapsed, silent: true}
			case "answers":
				took := rapid.SampledFrom([]time.Duration{0, limit / 2, limit}).Draw(t, "took")
				elapsed += took
				m.Connected(start.Add(elapsed), now, name, nil, false)
				m.Answered(name)
				*known = modelMember{failed: -1, needed: took}
			}
			recent := known.failed >= 0 && elapsed-known.failed < time.Second
			require.Equal(t, known.silent && recent, m.Avoids(start.Add(elapsed), name))
		}

		var tried []string // from here on all of them refuse
		for range 2 * n {
			name, after := m.Next(start.Add(elapsed), from)
			m.Connected(start.Add(elapsed), start.Add(elapsed), name, errRefused, false)
			tried, from, elapsed = append(tried, name), after, elapsed+time.Millisecond
		}
		for _, name := range names {
			require.Contains(t, tried, name, "each gets its turn")
		}
	})
}

// expected returns the member that is asked next.
func expected(model map[string]*modelMember, names []string, now time.Duration, from int) string {
	turn := append(slices.Clone(names[from%len(names):]), names[:from%len(names)]...)
	age := func(name string) time.Duration {
		if model[name].failed < 0 {
			return time.Second
		}
		return min(now-model[name].failed, time.Second)
	}
	return slices.MaxFunc(turn, func(a, b string) int { return int(age(a) - age(b)) })
}

// A search follows a redirect at once, but not to a member that was silent a moment ago, and not
// twice to the same one without a pause.
func TestSearchFollowsRedirects(t *testing.T) {
	m := clientcore.NewMembers([]string{"a", "b", "c"})
	now := engine.NewInstant(time.Unix(1000, 0), time.Hour)
	s := clientcore.NewSearch(now, 5*time.Second)
	redirect := func(to string) clientcore.Miss {
		return clientcore.Miss{Address: "a", Reached: true, Redirected: true, Leader: to, Err: errors.New("not the leader")}
	}
	turn := m.Missed(now, s, redirect("b"))
	require.True(t, turn.Again && turn.Leave)
	require.Equal(t, "b", turn.Leader)
	require.Zero(t, turn.Pause)
	require.Positive(t, m.Missed(now, s, redirect("b")).Pause)
	m.FellSilent(now, "c")
	turn = m.Missed(now, s, redirect("c"))
	require.True(t, turn.Again)
	require.Empty(t, turn.Leader, "the member does not know yet that the leader is gone")
	down := m.Missed(now.Add(5*time.Second), s, clientcore.Miss{Address: "b", Again: true, Err: errRefused})
	require.False(t, down.Again, "the time has passed")
	require.ErrorContains(t, down.Err, "not the leader", "more telling than that another member is down")
}

// A call that may have had an effect is not repeated by the search.
func TestSearchEndsWithAnUncertainOutcome(t *testing.T) {
	m := clientcore.NewMembers([]string{"a", "b"})
	now := engine.NewInstant(time.Unix(1000, 0), time.Hour)
	s := clientcore.NewSearch(now, 5*time.Second)
	for _, reached := range []bool{true, false} {
		turn := m.Missed(now, s, clientcore.Miss{Address: "a", Reached: reached, Again: true, Redirected: true,
			Err: engine.ErrUncertain})
		require.False(t, turn.Again)
		require.ErrorIs(t, turn.Err, engine.ErrUncertain)
	}
}

// Each member is asked whether it knows the caller: once if all can be reached.
func TestSearchAsksMembersThatKnowTheCaller(t *testing.T) {
	m := clientcore.NewMembers([]string{"a", "b", "c"})
	now := engine.NewInstant(time.Unix(1000, 0), time.Hour)
	s := clientcore.NewSearch(now, 5*time.Second)
	reject := func(address string) bool {
		return m.Missed(now, s, clientcore.Miss{Address: address, Reached: true, Rejected: true, Err: errRefused}).Again
	}
	require.True(t, reject("a"))
	require.False(t, reject("a"), "it has rejected the caller before")
	require.True(t, reject("b"))
	require.False(t, reject("c"), "all have rejected the caller")
	m.Missed(now, s, clientcore.Miss{Address: "a", Reached: true, Redirected: true, Err: errRefused})
	require.True(t, reject("a"), "an election is under way: members may have read their users since")

	s = clientcore.NewSearch(now, 5*time.Second)
	require.True(t, reject("a"))
	unreached := clientcore.Miss{Address: "b", Again: true, Err: errors.New("down")}
	require.True(t, m.Missed(now, s, unreached).Again)
	require.True(t, reject("a"), "the member that is down may know the caller")
	turn := m.Missed(now.Add(5*time.Second), s, unreached)
	require.False(t, turn.Again)
	require.ErrorIs(t, turn.Err, errRefused, "the answer of the member that could be reached")
}

// While no member can be reached, the search goes on after growing pauses.
func TestSearchPauses(t *testing.T) {
	m := clientcore.NewMembers([]string{"a", "b"})
	now := engine.NewInstant(time.Unix(1000, 0), time.Hour)
	s := clientcore.NewSearch(now, 5*time.Second)
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 100, 100} {
		turn := m.Missed(now, s, clientcore.Miss{Address: "a", Again: true, Err: errRefused})
		require.True(t, turn.Again)
		require.Equal(t, want*time.Millisecond, turn.Pause)
	}
	require.False(t, m.Missed(now, s, clientcore.Miss{Address: "a", Err: errRefused}).Again, "the address is not allowed")
}

// What a member needed long ago does not count when it fails again.
func TestConnectTimeIsForgotten(t *testing.T) {
	m := clientcore.NewMembers([]string{"a"})
	now := engine.NewInstant(time.Unix(1000, 0), time.Hour)
	fail := func() time.Duration {
		began, limit := now, m.ConnectTime(now, "a")
		now = now.Add(limit)
		m.Connected(now, began, "a", context.DeadlineExceeded, false)
		return limit
	}
	require.Equal(t, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}, []time.Duration{fail(), fail(),
		fail()})
	now = now.Add(30 * time.Second)
	require.Equal(t, []time.Duration{500 * time.Millisecond, time.Second}, []time.Duration{fail(), fail()})
}

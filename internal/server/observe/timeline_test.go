package observe

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/golden"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// newRecorder returns a Recorder and its clock.
func newRecorder() (*Recorder, *leasetest.StoppedClock) {
	clock := leasetest.NewStoppedClock()
	return NewRecorder(clock), clock
}

// happen records an event of the machine now.
func happen(r *Recorder, kind machine.EventType, name fencing.Resource, nonce engine.Nonce, token fencing.Token,
	holder string) {
	r.Applied(raftstore.Entry{At: r.clock.Now().Time(), Order: uint64(nonce)},
		[]machine.Event{{Type: kind, Resources: []fencing.Resource{name}, Nonce: nonce, Token: token,
			Mode: engine.Correctness, Holder: holder}})
}

// A busy lock keeps its newest events, and refusals do not displace them.
func TestEventsOfALockAreBounded(t *testing.T) {
	r, _ := newRecorder()
	for i := range 1000 {
		happen(r, machine.EventGranted, "busy", engine.Nonce(i+1), fencing.Token(i+1), "w")
		r.Refuse("busy", &engine.Party{Token: fencing.Token(i + 1)}, Refusal{})
	}
	events, refusals, truncated := r.of("busy")
	require.LessOrEqual(t, len(events), maxEvents)
	require.GreaterOrEqual(t, len(events), maxEvents*3/4)
	require.LessOrEqual(t, len(refusals), maxRefusals)
	require.GreaterOrEqual(t, len(refusals), maxRefusals*3/4)
	require.Equal(t, fencing.Token(1000), events[len(events)-1].token)
	require.Equal(t, fencing.Token(1000), refusals[len(refusals)-1].token)
	require.True(t, truncated)
	require.Equal(t, int64(1000), r.Usage()["busy"].Refused)

	_, _, truncated = r.of("unknown")
	require.False(t, truncated)
}

// heap returns the memory in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// requireBounded checks the memory of a Recorder, which is what was added to before.
func requireBounded(t *testing.T, r *Recorder, before int) {
	t.Helper()
	used := heap() - before
	t.Logf("%d MiB of at most %d MiB", used>>20, (maxBytes+maxRefusalBytes)>>20)
	require.Less(t, used, (maxBytes+maxRefusalBytes)*5/4)
	runtime.KeepAlive(r)
}

// Events share their parties and each keeps its own. What a shard accounts for is the cost of its records.
func TestEventsKeepTheirParties(t *testing.T) {
	const locks, users, events = 10, 3, 3000
	r, _ := newRecorder()
	random := rand.New(rand.NewPCG(1, 2))
	names := map[engine.Nonce]string{}
	for i := range events {
		n := random.IntN(users)
		nonce, holder := engine.Nonce(i+1), strings.Repeat("w", n)
		names[nonce] = holder
		r.Applied(raftstore.Entry{At: r.clock.Now().Time()}, []machine.Event{{Type: machine.EventGranted,
			Resources: []fencing.Resource{fencing.Resource(strconv.Itoa(random.IntN(locks)))}, Nonce: nonce,
			Session: engine.SessionID{byte(n)}, Holder: holder, User: "user of " + holder}})
		r.Refuse("0", &engine.Party{Holder: holder}, Refusal{Gate: "sql"})
	}
	for i := range locks {
		events, _, _ := r.of(fencing.Resource(strconv.Itoa(i)))
		require.NotEmpty(t, events)
		for _, e := range events {
			holder := names[e.nonce]
			want := party{session: engine.SessionID{byte(len(holder))}, holder: holder, user: "user of " + holder}
			require.Equal(t, want, *e.party)
		}
	}
	for _, l := range []*timeline{r.events, r.refusals} {
		for i := range l.shards {
			cost := 0
			for _, known := range l.shards[i].current {
				cost += known.cost()
			}
			require.Equal(t, cost, l.shards[i].bytes)
		}
	}
}

// However many locks there are, and however long their names, the memory is bounded. A
// lock that was used lately survives the others.
func TestMemoryIsBounded(t *testing.T) {
	before := heap()
	r, _ := newRecorder()
	const locks = 150_000
	long := strings.Repeat("x", 100)
	for i := range locks {
		name := fencing.Resource(fmt.Sprintf("jobs/%08d", i))
		holder := fmt.Sprintf("worker-%s-%d", long, i)
		happen(r, machine.EventGranted, name, engine.Nonce(i+1), fencing.Token(i+1), holder)
		happen(r, machine.EventReleased, name, engine.Nonce(i+1), fencing.Token(i+1), holder)
		if i%100 == 0 {
			happen(r, machine.EventGranted, "used often", engine.Nonce(i+1), fencing.Token(i+1), "w")
		}
	}
	requireBounded(t, r, before)
	events, _, _ := r.of("used often")
	require.GreaterOrEqual(t, len(events), maxEvents*3/4)
	events, _, truncated := r.of("jobs/00000000")
	require.Empty(t, events)
	require.True(t, truncated, "the answer says that events were dropped")
}

// The memory is bounded also if the same locks are used again and again, and by refusals.
func TestMemoryOfKnownLocksIsBounded(t *testing.T) {
	before := heap()
	r, _ := newRecorder()
	const locks = 20_000 // they fit into one generation until their records grow
	names := make([]fencing.Resource, locks)
	for i := range names {
		names[i] = fencing.Resource(fmt.Sprintf("jobs/%08d", i))
	}
	long := strings.Repeat("x", 230)
	for round := range 16 {
		for i, name := range names {
			number := round*locks + i + 1
			holder := long[:min(round, 1)*len(long)] + strconv.Itoa(number)
			happen(r, machine.EventGranted, name, engine.Nonce(number), fencing.Token(number), holder)
			if round < 4 {
				r.Refuse(name, &engine.Party{Token: fencing.Token(number), Holder: holder}, Refusal{})
			}
		}
	}
	requireBounded(t, r, before)
	events, _, truncated := r.of(names[locks-1])
	require.NotEmpty(t, events)
	require.True(t, truncated)
	runtime.KeepAlive(names)
}

// Refusals that somebody reports for many locks displace no event.
func TestRefusalsDisplaceNoEvents(t *testing.T) {
	r, _ := newRecorder()
	happen(r, machine.EventGranted, "used", 1, 1, "w")
	for i := range 200_000 {
		r.Refuse(fencing.Resource(fmt.Sprintf("jobs/%08d", i)), &engine.Party{Token: 1}, Refusal{Gate: "sql"})
	}
	events, _, _ := r.of("used")
	require.Len(t, events, 1)
	require.Less(t, len(r.Usage()), 20_000)
}

// After a snapshot replaced the state, the events before it do not explain the state, and
// tokens that were not seen have no time.
func TestRestoredForgetsEvents(t *testing.T) {
	r, clock := newRecorder()
	happen(r, machine.EventGranted, "a", 1, 1, "w")
	granted := r.clock.Now().Time()
	happen(r, machine.EventGranted, "b", 2, 2, "w")
	happen(r, machine.EventReleased, "b", 2, 2, "w")
	clock.Move(time.Hour)
	r.Restored(machine.New())
	events, _, truncated := r.of("a")
	require.Len(t, events, 1, "the lease that the new state does not have")
	require.Equal(t, Ended, events[0].kind)
	require.Equal(t, "w", events[0].holder)
	require.True(t, truncated)
	events, _, _ = r.of("b")
	require.Empty(t, events)
	require.Equal(t, r.clock.Now().Time().UTC(), r.start())

	happen(r, machine.EventGranted, "a", 2, 1<<32+7, "w")
	require.WithinDuration(t, r.clock.Now().Time(), r.Granted(1<<32+7), time.Second)
	require.WithinDuration(t, granted, r.Granted(1), time.Second)
	require.Zero(t, r.Granted(3), "nobody knows when a token in the gap was granted")
	require.Zero(t, r.Granted(1<<32+8))
}

// Several sources may report the same event of a lock in efficiency mode.
func TestAddIgnoresKnownEvents(t *testing.T) {
	r, clock := newRecorder()
	p := &engine.Party{Holder: "w", Session: engine.NewSessionID(), Nonce: 1, Token: 5}
	for range 3 {
		r.Add("e", Granted, p, time.Time{})
		r.Add("e", Waiting, &engine.Party{Holder: "another process"}, time.Time{})
	}
	r.Add("e", Broken, &engine.Party{Token: 5}, time.Time{})
	r.Add("e", Broken, p, time.Time{})
	events, _, _ := r.of("e")
	require.Len(t, events, 3)
	require.Equal(t, "w", events[2].holder, "a token alone names its holder")
	clock.Move(time.Minute)
	r.Add("e", Waiting, &engine.Party{Holder: "another process"}, time.Time{})
	events, _, _ = r.of("e")
	require.Len(t, events, 4)
}

// The rate of a lock is that of the last seconds.
func TestRates(t *testing.T) {
	r, clock := newRecorder()
	for i := range 100 {
		happen(r, machine.EventGranted, "a", engine.Nonce(i+1), fencing.Token(i+1), "w")
		clock.Move(100 * time.Millisecond)
	}
	rates := func() map[fencing.Resource]float64 {
		all := map[fencing.Resource]float64{}
		for name, u := range r.Usage() {
			all[name] = u.GrantsPerSecond
		}
		return all
	}
	require.InDelta(t, 10, rates()["a"], 0.5)
	require.InDelta(t, 10, r.GrantsPerSecond(), 0.5)
	clock.Move(time.Minute)
	require.Empty(t, rates())
	require.Zero(t, r.GrantsPerSecond())
}

// After a leader whose clock was ahead, the rates are those of the next leader.
func TestRatesAfterAClockThatWasAhead(t *testing.T) {
	r, clock := newRecorder()
	ahead := raftstore.Entry{At: clock.Now().Time().Add(time.Hour)}
	grant := []machine.Event{{Type: machine.EventGranted, Resources: []fencing.Resource{"a"}, Mode: engine.Correctness}}
	for range 1000 {
		r.Applied(ahead, grant)
	}
	for range 100 {
		r.Applied(raftstore.Entry{At: clock.Now().Time()}, grant)
		clock.Move(100 * time.Millisecond)
	}
	require.InDelta(t, 10, r.Usage()["a"].GrantsPerSecond, 0.5)
	require.InDelta(t, 10, r.GrantsPerSecond(), 0.5)
}

// The times of grants survive a restart. A damaged or newer file is refused.
func TestTimesSurviveARestart(t *testing.T) {
	r, clock := newRecorder()
	path := filepath.Join(t.TempDir(), FileName)
	require.NoError(t, r.Load(path), "there is no file yet")
	for i := range 10 {
		happen(r, machine.EventGranted, "a", engine.Nonce(i+1), fencing.Token(i+1), "w")
		happen(r, machine.EventQueued, "a", engine.Nonce(i+1), 0, "v")
		clock.Move(time.Minute)
	}
	require.NoError(t, r.Save(path))

	again := NewRecorder(clock)
	require.NoError(t, again.Load(path))
	for i := range 10 {
		require.False(t, again.Granted(fencing.Token(i+1)).IsZero())
		require.Equal(t, r.Granted(fencing.Token(i+1)), again.Granted(fencing.Token(i+1)))
		require.Equal(t, r.Queued(uint64(i+1)), again.Queued(uint64(i+1)))
	}
	writeFile(t, path, `{"version":2,"tokens":[],"orders":[]}`)
	require.ErrorContains(t, NewRecorder(clock).Load(path), "reads versions up to 1")
	writeFile(t, path, `{"version":1,"tokens":[[5,1,2,3]],"orders":[]}`)
	require.ErrorContains(t, NewRecorder(clock).Load(path), "not in order")
	writeFile(t, path, `{`)
	require.ErrorContains(t, NewRecorder(clock).Load(path), path)
}

// TestGoldenTimes checks that the file has the content of version 1.
func TestGoldenTimes(t *testing.T) {
	r, _ := newRecorder()
	r.tokens.samples = []sample{{1792143000000, 1792143001000, 1, 40}, {1792143060000, 1792143060000, 41, 1<<32 + 7}}
	r.orders.samples = []sample{{1792143000500, 1792143002000, 3, 9}}
	path := filepath.Join(t.TempDir(), FileName)
	require.NoError(t, r.Save(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)

	writeFile(t, path, golden.Text(t, FileName, string(text)))
	again, _ := newRecorder()
	require.NoError(t, again.Load(path))
	require.Equal(t, r.tokens.samples, again.tokens.samples)
	require.Equal(t, r.orders.samples, again.orders.samples)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// BenchmarkApplied measures what the Recorder adds to the machine for one acquire and one
// release: with the names of few locks, and with a new name each time.
//
//	go test -run '^$' -bench Applied ./internal/server/observe
func BenchmarkApplied(b *testing.B) {
	for _, locks := range []int{1000, 1 << 30} {
		b.Run(fmt.Sprintf("%d locks", locks), func(b *testing.B) {
			b.ReportAllocs()
			r := NewRecorder(engine.MonotonicClock())
			names := make([][]fencing.Resource, min(locks, 1<<20))
			for i := range names {
				names[i] = []fencing.Resource{fencing.Resource(fmt.Sprintf("orders/%07d", i))}
			}
			at, i := time.Now(), 0
			for b.Loop() {
				at = at.Add(10 * time.Microsecond)
				e := machine.Event{Type: machine.EventGranted, Resources: names[i%len(names)], Nonce: engine.Nonce(i + 1),
					Token: fencing.Token(i + 1),
					Mode:  engine.Correctness, Holder: "worker-17"}
				r.Applied(raftstore.Entry{At: at}, []machine.Event{e})
				e.Type = machine.EventReleased
				r.Applied(raftstore.Entry{At: at}, []machine.Event{e})
				i++
			}
		})
	}
}

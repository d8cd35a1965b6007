package redlockadapter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// handClock is a clock that stands still unless it is moved.
type handClock struct{ now lease.Instant }

func (c *handClock) Now() lease.Instant { return c.now }

// passing is a process without nodes, for what its queues decide: it holds the
// lock x, and a waiter stands first in line for it.
type passing struct {
	clock  *handClock
	queues *queues
	holder *attempt
	first  *waiter
}

func newPassing() *passing {
	p := &passing{clock: &handClock{lease.NewInstant(time.Unix(1e9, 0), time.Hour)}}
	b := &Backend{clock: p.clock, quorum: 1}
	p.queues = newQueues(b)
	p.holder = &attempt{session: &session{backend: b, ttl: time.Minute}, locks: []string{"x"}}
	p.first = p.queues.join(p.holder.locks)
	p.queues.held(p.holder)
	return p
}

// release ends the grant of the holder. yields reports whether others go first.
func (p *passing) release() (f *farewell, yields bool) {
	f = p.queues.release(p.holder)
	return f, p.queues.ready(p.first) > 0
}

// A lock is passed on inside a process so many times, and then others go first:
// also before anyone who asks for it just then.
func TestATurnEndsAfterSoManyHandoffs(t *testing.T) {
	p := newPassing()
	for range maxStreak - 1 {
		_, yields := p.release()
		require.False(t, yields)
		p.queues.held(p.holder)
	}
	_, yields := p.release()
	require.True(t, yields)
	second := p.queues.join(p.holder.locks)
	p.queues.leave(p.first)
	require.Positive(t, p.queues.ready(second))
}

// The turn of a process ends after some time too: its callers may hold for long.
func TestATurnEndsAfterSomeTime(t *testing.T) {
	p := newPassing()
	_, yields := p.release()
	require.False(t, yields)
	p.queues.held(p.holder)
	p.clock.now = p.clock.now.Add(maxTurn)
	_, yields = p.release()
	require.True(t, yields)
}

// Who lets others go first goes on at once if there are none, when it is woken
// itself, and else after a while.
func TestHowLongOthersGoFirst(t *testing.T) {
	yield := func(answered string) *passing {
		p := newPassing()
		p.queues.putOff(p.first, time.Hour)
		p.clock.now = p.clock.now.Add(maxTurn)
		f, yields := p.release()
		require.True(t, yields)
		f.answered(0, answer{text: answered})
		<-p.first.signal
		return p
	}
	p := yield("0")
	require.Zero(t, p.queues.ready(p.first), "nobody was woken")
	p = yield("1")
	require.Positive(t, p.queues.ready(p.first))
	p.queues.freed(0, "x")
	<-p.first.signal
	require.Zero(t, p.queues.ready(p.first), "it was woken")
	p = yield("1")
	p.clock.now = p.clock.now.Add(2 * yieldPause)
	p.first.tried = false
	require.Zero(t, p.queues.ready(p.first), "the others had their chance")
}

// Who gets a lock from its own process asks for it at once, though it was told a
// moment ago to ask again later: another caller of the process came first then.
func TestWhoIsHandedALockAsksAtOnce(t *testing.T) {
	p := newPassing()
	p.queues.putOff(p.first, time.Hour)
	_, yields := p.release()
	require.False(t, yields)
}

// A node that answers a proposal with a newer epoch, or has passed the lock on, is
// a reason to try again, not to give up.
func TestARefusedProposalIsTriedAgain(t *testing.T) {
	for text, want := range map[string]error{"epoch 9": errOldEpoch, "refused": errSplit, "empty": lease.ErrUnavailable} {
		a := &attempt{session: &session{backend: &Backend{nodes: []*node{{}, {}, {}}}}, decided: make(chan struct{}), proposed: 6, errs: []error{nil, nil, errNodeDown},
			votes: []quorum.Vote{{State: quorum.Accepted, Token: 5, Raising: true}, {State: quorum.Accepted, Token: 6}, {State: quorum.Failed}}}
		a.raised(0, 6, answer{text: text})
		require.True(t, a.lost(), text)
		require.ErrorIs(t, a.refusal(), want, text)
	}
}

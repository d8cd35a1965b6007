package redlockadapter

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

const (
	// maxSleep bounds how long a waiter relies on wake-ups. They are hints, and can be
	// lost with a connection; a few attempts per second cost little.
	maxSleep = 200 * time.Millisecond
	// maxJitter spreads waiters whose timers fire at the same time.
	maxJitter = 10 * time.Millisecond
)

// waiter is an acquire that waits. Its fields are guarded by the mu of queues.
type waiter struct {
	want    engine.Held
	since   time.Time      // for people
	signal  chan struct{}  // contend again
	wokenBy quorum.Nodes   // the nodes that sent a wake-up
	refused bool           // others held the lock when it contended last
	retryAt engine.Instant // when to contend again without a wake-up
	// freed is when a holder of this process released the lock, or zero if another process has been seen to hold it
	// since.
	freed engine.Instant
}

func (w *waiter) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// acquireWaiting waits until the request is the first in this process, and then for
// the lock. It calls queued, if not nil, once when it starts to wait.
func (b *Backend) acquireWaiting(ctx context.Context, want engine.Held, queued func()) (*attempt, error) {
	w := b.queues.join(want)
	splits, waited := 0, false
	name, ticket := "", "" // a free lock needs no place in the nodes' queues
	defer func() {
		// Before the next waiter of this process contends, which may have the same name on the nodes.
		b.leaveNodes(want.Resources, name)
		b.queues.leave(w)
	}()
	for {
		wait := b.queues.contend(w)
		if wait == 0 {
			a, err := b.try(ctx, want, name, ticket)
			var held *heldError
			switch {
			case err == nil:
				b.queues.handedOff(w)
				name = "" // the nodes that granted the lock have removed it
				return a, nil
			case errors.As(err, &held) && ticket == "":
				// The nodes know a waiter by its process and, for people, its holder. The
				// ticket orders them: the clocks of processes need not agree.
				name, ticket = b.process+" "+want.Holder, strconv.FormatInt(w.since.UnixMicro(), 10)
				continue
			case errors.As(err, &held):
				b.queues.postpone(w, min(held.freeAfter, maxSleep+rand.N(maxSleep))+time.Millisecond+rand.N(maxJitter))
				splits = 0
			case errors.Is(err, errSplit):
				b.queues.postpone(w, splitPause(splits))
				splits++
			default:
				return nil, err
			}
			wait = b.queues.contend(w)
		}
		if wait > 0 && !waited {
			waited = true
			b.debug("queued", &want)
			if queued != nil {
				queued()
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-w.signal:
		case <-timer.C:
		case <-ctx.Done():
			return nil, engine.Cause(ctx)
		}
		timer.Stop()
	}
}

// leaveNodes removes a waiter from the queues of the nodes. Nobody waits for the answers: a node forgets a waiter that
// does not ask again.
func (b *Backend) leaveNodes(resources []fencing.Resource, name string) {
	if name == "" {
		return
	}
	request := scripts.Leave(resources, name)
	under, _ := b.authorize(nil) // in another fleet, any server may have it
	request.Servers = under.servers
	request.Answer = func(int, redisconn.Reply) {}
	b.sendAll(request)
}

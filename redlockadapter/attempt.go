package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// attempt is one try of one nonce: its scripts are sent once to every node, and
// the votes decide. It is granted or ended, for good. A nonce that is tried
// again gets a new attempt with a name of its own, so that nothing of an earlier
// one can be taken for it.
type attempt struct {
	session   *session
	nonce     lease.Nonce
	name      string // the nonce as the nodes know it, unique in the world
	resources []fencing.Resource
	locks     []string // the keys of the locks
	info      string
	epoch     string

	keys struct{ acquire, pair, release []any } // what the scripts are called with
	tomb any                                    // the key of its tombstone

	sent lease.Instant // before the first send, or before the last renewal

	stop    atomic.Bool   // what was not sent need not be
	decided chan struct{} // closed with the decision
	heard   chan struct{} // closed when every node has answered the acquire, or will not

	mu       sync.Mutex
	votes    []quorum.Vote
	unknown  []bool // a script may have been carried out, or may still be
	errs     []error
	silent   int // nodes that have not answered the acquire
	proposed fencing.Token
	outcome  quorum.Outcome
	token    fencing.Token // once granted
	ended    bool          // released or lost
}

// newAttempt prepares a try. waiter is the process's name if it wants to be
// woken, else "".
func newAttempt(s *session, request *lease.Request, name string, epoch uint64, waiter string) *attempt {
	b := s.backend
	n := len(b.lanes)
	a := &attempt{session: s, nonce: request.Nonce, name: name, resources: request.Resources, epoch: epochText(epoch),
		info: infoOf(s.ttl, request), decided: make(chan struct{}), heard: make(chan struct{}), silent: n,
		votes: make([]quorum.Vote, n), unknown: make([]bool, n), errs: make([]error, n)}
	a.tomb = b.keys.tomb + name
	for _, r := range request.Resources {
		lock := b.keys.lock + string(r)
		a.locks = append(a.locks, lock)
		boxed, counter, waiting := any(lock), any(b.keys.counter+string(r)), any(b.keys.waiting+string(r))
		a.keys.pair = append(a.keys.pair, boxed, counter)
		if waiter != "" {
			a.keys.acquire = append(a.keys.acquire, boxed, counter, waiting)
		}
		a.keys.release = append(a.keys.release, boxed, waiting)
	}
	if waiter == "" {
		a.keys.acquire = a.keys.pair
	}
	return a
}

// ask sends the attempt to all nodes at once.
func (a *attempt) ask(waiter string) {
	a.sent = a.session.config.Clock.Now()
	o := op{script: acquireScript, epoch: a.epoch, keys: a.keys.acquire, stop: &a.stop, answer: a.voted,
		args: []any{a.name, a.session.ttlText, a.info, strconv.Itoa(len(a.locks)), waiter}}
	for _, l := range a.session.backend.lanes {
		l.push(o)
	}
}

// voted takes in a node's answer to acquire.
func (a *attempt) voted(node int, got answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.votes[node]
	raising := v.Raising
	*v, a.errs[node] = voteOf(got)
	v.Raising = raising
	a.unknown[node] = got.sent
	if a.silent--; a.silent == 0 {
		close(a.heard)
	}
	if a.ended {
		return
	}
	if a.outcome == quorum.Granted {
		if v.State == quorum.Accepted && v.Token < a.token {
			a.propose(node, a.token) // lest the counters differ next time
		}
		return
	}
	a.decide()
}

// voteOf reads the answer of the acquire script.
func voteOf(got answer) (quorum.Vote, error) {
	if got.err != nil {
		return quorum.Vote{State: quorum.Failed}, got.err
	}
	if token, err := fencing.ParseToken(got.text); err == nil {
		return quorum.Vote{State: quorum.Accepted, Token: token}, nil
	}
	word, rest, _ := strings.Cut(got.text, " ")
	switch word {
	case "held":
		left, holder, _ := strings.Cut(rest, " ")
		// A session passes a lock on so quickly that the nodes name different
		// attempts of it: it holds the lock all the same.
		holder, _, _ = strings.Cut(holder, ":")
		millis, _ := strconv.ParseInt(left, 10, 64)
		return quorum.Vote{State: quorum.Held, Left: time.Duration(millis) * time.Millisecond, Holder: holder}, lease.ErrHeld
	case "empty":
		return quorum.Vote{State: quorum.Refused}, errNodeEmpty
	case "epoch":
		return quorum.Vote{State: quorum.Refused}, errOldEpoch
	case "full":
		return quorum.Vote{State: quorum.Refused}, errFull
	}
	return quorum.Vote{State: quorum.Refused}, fmt.Errorf("node answered %q", got.text)
}

// decide looks at the votes. The caller holds mu.
func (a *attempt) decide() {
	if a.outcome != quorum.Wait {
		return
	}
	d := quorum.Decide(a.votes, a.proposed)
	switch d.Outcome {
	case quorum.Wait:
		return
	case quorum.Raise:
		a.proposed = d.Token
		for node, v := range a.votes {
			if v.State == quorum.Pending || v.State == quorum.Accepted && v.Token < d.Token {
				a.propose(node, d.Token)
			}
		}
		return
	case quorum.Granted:
		a.token = d.Token
		for node, v := range a.votes {
			if v.State == quorum.Accepted && v.Token < d.Token && !v.Raising {
				a.propose(node, d.Token)
			}
		}
	}
	a.outcome = d.Outcome
	close(a.decided)
}

// propose asks a node to accept a larger value. The caller holds mu.
func (a *attempt) propose(node int, token fencing.Token) {
	a.votes[node].Raising = true
	a.session.backend.lanes[node].push(op{script: raiseScript, epoch: a.epoch, keys: a.keys.pair, stop: &a.stop,
		args:   []any{a.name, token.String(), strconv.Itoa(len(a.locks))},
		answer: func(node int, got answer) { a.raised(node, token, got) }})
}

// raised takes in a node's answer to a proposal.
func (a *attempt) raised(node int, token fencing.Token, got answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.votes[node]
	if token >= a.proposed {
		v.Raising = false
	}
	switch {
	case got.err == nil && got.text == token.String():
		v.State, v.Token = quorum.Accepted, max(v.Token, token)
	case v.State == quorum.Accepted && v.Token >= token: // it had accepted more by itself
	case got.err != nil:
		v.State, a.errs[node] = quorum.Failed, got.err
	default:
		v.State, a.errs[node] = quorum.Refused, fmt.Errorf("node answered %q", got.text)
	}
	if !a.ended {
		a.decide()
	}
}

// await returns when the votes have decided, or after limit, or when ctx ends.
func (a *attempt) await(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-a.decided:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: no majority within %v", lease.ErrUnavailable, limit)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hear gives the other nodes a moment to answer too. Who has lost and wants to
// wait must know whether someone has the lock, or several a part of it: nobody
// tells those who sleep that the votes were split.
func (a *attempt) hear(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-a.heard:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// refusal is what a lost attempt failed on.
func (a *attempt) refusal() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case quorum.HeldByOther(a.votes):
		return lease.ErrHeld
	case a.any(errOldEpoch):
		return errOldEpoch
	case a.any(lease.ErrHeld):
		return errSplit
	}
	return fmt.Errorf("%w: no majority of the Redis nodes votes: %w", lease.ErrUnavailable, errors.Join(a.errs...))
}

func (a *attempt) lost() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.outcome == quorum.Lost
}

// over reports whether the attempt was released.
func (a *attempt) over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

// any reports whether some node gave this reason. The caller holds mu.
func (a *attempt) any(reason error) bool {
	for _, err := range a.errs {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// freeAfter is when it makes sense to try again if nobody says so before.
func (a *attempt) freeAfter() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return quorum.FreeAfter(a.votes)
}

// infoOf is what a lock carries for those who look: the TTL in milliseconds, the
// holder and its metadata, a line each.
func infoOf(ttl time.Duration, request *lease.Request) string {
	return strconv.FormatInt(ttl.Milliseconds(), 10) + "\n" + request.Holder + "\n" + encodeMetadata(request.Metadata)
}

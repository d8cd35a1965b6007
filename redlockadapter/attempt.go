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
	locks     []string // as the nodes know them
	body      string   // its name, and info for people
	epoch     string
	claim     claim
	short     args // its lock and its body; none of a set or a claim that others share

	sent lease.Instant // before the first send, or before the last renewal

	stop    atomic.Bool   // what was not sent need not be
	decided chan struct{} // closed with the decision
	heard   chan struct{} // of one who waits: closed when every node has answered the acquire, or will not

	mu       sync.Mutex
	votes    []quorum.Vote
	unknown  uint64  // the nodes where a script may have been carried out, or may still be
	errs     []error // why nodes did not vote; nil if all did
	silent   int     // nodes that have not answered the acquire
	proposed fencing.Token
	outcome  quorum.Outcome
	token    fencing.Token // once granted
	ended    bool          // released or lost
}

// newAttempt prepares a try.
func newAttempt(s *session, request *lease.Request, name string, epoch uint64, c claim) *attempt {
	n := len(s.backend.lanes)
	a := &attempt{session: s, nonce: request.Nonce, name: name, resources: request.Resources, epoch: epochText(epoch), claim: c,
		body: name + "\n" + infoOf(c.after(s.ttlText), request), decided: make(chan struct{}), silent: n, votes: make([]quorum.Vote, n)}
	a.locks = locksOf(request.Resources)
	if a.plain() {
		a.short = newArgs(a.locks[0], a.body)
	}
	return a
}

// plain reports whether it is for one lock alone, which the scripts are quickest
// with.
func (a *attempt) plain() bool { return len(a.locks) == 1 && a.claim.kind == lease.Exclusive }

// long are the args of a script: what it is told first, the locks and the body.
func (a *attempt) long(first string) args {
	all := make([]string, 0, 2+len(a.locks))
	all = append(append(append(all, first), a.locks...), a.body)
	return newArgs(all...)
}

// ask sends the attempt to all nodes at once.
func (a *attempt) ask(waiter string) {
	s := a.session
	o := &op{script: acquireScript, head: s.headOf(a.epoch), args: a.short, stop: &a.stop, answer: a.voted}
	if waiter != "" || !a.plain() {
		o.args = a.long(a.claim.asked("*" + strconv.Itoa(len(a.locks)) + " " + waiter))
	}
	if waiter != "" {
		a.heard = make(chan struct{})
	}
	a.sent = s.config.Clock.Now()
	for _, l := range s.backend.lanes {
		l.push(o)
	}
}

// voted takes in a node's answer to acquire.
func (a *attempt) voted(node int, got answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.votes[node]
	vote, err := voteOf(got)
	vote.Raising = v.Raising
	*v = vote
	a.failed(node, err)
	if got.sent {
		a.unknown |= 1 << node
	}
	if a.silent--; a.silent == 0 && a.heard != nil {
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

// sentInVain notes that a node may have carried out what it did not answer, or
// may do so later: its release must leave a tombstone.
func (a *attempt) sentInVain(node int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unknown |= 1 << node
}

// failed notes why a node did not vote. The caller holds mu.
func (a *attempt) failed(node int, err error) {
	if err == nil {
		return
	}
	if a.errs == nil {
		a.errs = make([]error, len(a.votes))
	}
	a.errs[node] = err
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
	case "busy":
		return quorum.Vote{State: quorum.Refused}, errBusy
	case "slot":
		free, _ := strconv.Atoi(rest)
		return quorum.Vote{State: quorum.Refused}, slotTaken{free}
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
	a.session.backend.lanes[node].push(&op{script: raiseScript, head: newArgs(a.epoch), stop: &a.stop,
		args:   a.long(strconv.Itoa(len(a.locks)) + " " + token.String()),
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
		v.State = quorum.Failed
		a.failed(node, got.err)
	case got.text == "refused": // it has passed the lock on, or its floor was raised
		v.State = quorum.Refused
		a.failed(node, errSplit)
	default: // its epoch has moved, or it was emptied
		v.State = quorum.Refused
		_, err := voteOf(got)
		a.failed(node, err)
	}
	if !a.ended {
		a.decide()
	}
}

// await returns when the votes have decided, or after limit, or when ctx ends.
func (a *attempt) await(ctx context.Context, limit time.Duration) error {
	timer := startTimer(limit)
	defer stopTimer(timer)
	select {
	case <-a.decided:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: no majority within %v", lease.ErrUnavailable, limit)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// timers are kept for the next one who needs one: every attempt does.
var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

func startTimer(d time.Duration) *time.Timer {
	timer := timers.Get().(*time.Timer)
	timer.Reset(d)
	return timer
}

func stopTimer(timer *time.Timer) {
	timer.Stop()
	timers.Put(timer)
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
	case otherSlot(a.errs) > 0:
		return slotTaken{otherSlot(a.errs)}
	case a.any(lease.ErrHeld) || a.any(errBusy) || a.any(errSplit):
		return errSplit
	}
	var why []error
	for i, err := range a.errs {
		if err != nil {
			why = append(why, fmt.Errorf("%s: %w", a.session.backend.nodes[i].addr, err))
		}
	}
	return fmt.Errorf("%w: no majority of the Redis nodes votes: %w", lease.ErrUnavailable, errors.Join(why...))
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

// infoOf is what a lock carries for those who look: the TTL in milliseconds and
// the claim, the holder, and its metadata, a line each.
func infoOf(ttl string, request *lease.Request) string {
	return ttl + "\n" + request.Holder + "\n" + encodeMetadata(request.Metadata)
}

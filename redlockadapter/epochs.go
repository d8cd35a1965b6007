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

// recheck is how soon an unhealthy set of nodes is looked at again.
const recheck = 250 * time.Millisecond

// patrolEvery is how often the nodes are looked at though nothing is known to be
// wrong: nobody who votes may be there to notice.
const patrolEvery = 5 * time.Second

// epochs knows which epoch an attempt may carry, notices emptied nodes and
// brings them back. One goroutine does the work, when it is poked.
type epochs struct {
	backend *Backend
	current atomic.Uint64 // 0: none is usable
	wake    chan struct{}
	done    chan struct{}

	round chan struct{} // held by the one who looks: not a mutex, since a look takes time
	looks atomic.Uint64

	mu      sync.Mutex
	trouble error // why no epoch is usable
}

func newEpochs(b *Backend) *epochs {
	return &epochs{backend: b, round: make(chan struct{}, 1), wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// poke has the nodes looked at soon. It never blocks.
func (e *epochs) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *epochs) run(ctx context.Context) {
	defer close(e.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	turn, patrol := time.NewTicker(min(e.backend.config.IdleCounters/4, time.Hour)), time.NewTicker(patrolEvery)
	defer turn.Stop()
	defer patrol.Stop()
	for {
		select {
		case <-e.wake:
		case <-timer.C:
		case <-patrol.C:
		case <-turn.C:
			e.backend.turn(ctx)
			continue
		case <-ctx.Done():
			return
		}
		if e.look(ctx) {
			timer.Stop()
		} else {
			timer.Reset(recheck)
		}
	}
}

// usable is the epoch for a new attempt, or why there is none.
func (e *epochs) usable() (uint64, error) {
	if epoch := e.current.Load(); epoch > 0 {
		return epoch, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.trouble == nil {
		return 0, lease.ErrUnavailable
	}
	return 0, e.trouble
}

// explain is the error of a call that found no majority, with what is known of
// the reason.
func (e *epochs) explain(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.trouble == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", e.trouble, err)
}

// refresh looks at the nodes now, unless someone has since the caller saw look
// number seen.
func (e *epochs) refresh(ctx context.Context, seen uint64) {
	select {
	case e.round <- struct{}{}:
	case <-ctx.Done():
		return
	}
	stale := e.looks.Load() == seen
	<-e.round
	if stale {
		e.look(ctx)
	}
}

// look asks all nodes how they are, and does what is to be done. It reports
// whether all of them are well.
func (e *epochs) look(ctx context.Context) bool {
	select {
	case e.round <- struct{}{}:
		defer func() { <-e.round }()
	case <-ctx.Done():
		return false
	}
	defer e.looks.Add(1)
	states, errs := e.backend.states(ctx)
	reports := reportsOf(states, errs)
	usable, largest := quorum.EpochOf(reports)
	if largest > usable {
		// Some node is ahead: its epoch may be carried once a majority has it.
		prepared := e.prepare(ctx, largest, false)
		usable, _ = quorum.EpochOf(prepared)
	}
	e.adopt(usable, states, errs)
	e.settle(ctx, reports)
	well := true
	for i := range states {
		switch {
		case errs[i] != nil:
			well = false
		case !states[i].data:
			well = false
			if !states[i].joined || e.backend.mayRejoin(reports, states, i) {
				if e.rejoin(ctx, i) == nil { // otherwise it is tried again, and Status tells
					e.poke()
				}
			}
		}
	}
	return well && e.current.Load() > 0
}

// settle ends the difference between nodes that came back by their word and others,
// once they are a majority: what they say is what counts from then on.
func (e *epochs) settle(ctx context.Context, reports []quorum.Report) {
	if _, majority := quorum.PlanRejoin(reports); !majority {
		return
	}
	e.backend.each(func(i int, n *node) {
		if reports[i].Believed {
			_ = n.client.HDel(ctx, n.key(), "believed").Err() // it is tried again with the next look
		}
	})
}

// adopt makes an epoch the one that new attempts carry. It never goes back.
func (e *epochs) adopt(usable uint64, states []state, errs []error) {
	if usable > e.current.Load() {
		e.current.Store(usable)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trouble = nil
	if usable == 0 {
		e.trouble = troubleOf(states, errs)
	}
}

// troubleOf says why a majority cannot be had.
func troubleOf(states []state, errs []error) error {
	reached, votes, restarted := 0, 0, 0
	for i, err := range errs {
		switch {
		case err != nil:
			continue
		case states[i].data:
			votes++
		case states[i].doubted:
			restarted++
		}
		reached++
	}
	missing := len(states) - reached
	switch need := quorum.Size(len(states)); {
	case reached < need:
	case votes+restarted+missing < need:
		return ErrNoData
	case missing > 0:
		return fmt.Errorf("%w: %d of %d Redis nodes vote, %d are needed, and %d were restarted and wait for a majority that was not; bring those back that are out of reach"+
			" (only if their data is lost for good start empty ones in their place): %w", lease.ErrUnavailable, votes, len(states), need, restarted, errors.Join(errs...))
	default: // they come back by themselves
		return fmt.Errorf("%w: %d of %d Redis nodes vote, %d are needed; %d were restarted and vote again in a moment", lease.ErrUnavailable, votes, len(states), need, restarted)
	}
	return fmt.Errorf("%w: %d of %d Redis nodes answer, %d are needed: %w",
		lease.ErrUnavailable, reached, len(states), quorum.Size(len(states)), errors.Join(errs...))
}

func reportsOf(states []state, errs []error) []quorum.Report {
	reports := make([]quorum.Report, len(states))
	for i, s := range states {
		if errs[i] == nil {
			reports[i] = quorum.Report{Known: true, Data: s.data, Doubted: s.doubted, Believed: s.believed, Epoch: s.epoch, Max: s.max}
		}
	}
	return reports
}

// prepare moves the nodes that have data to an epoch and reports those that did.
// Those that are doubted are among them if they are believed.
func (e *epochs) prepare(ctx context.Context, epoch uint64, believe bool) []quorum.Report {
	b := e.backend
	reports := make([]quorum.Report, len(b.nodes))
	b.each(func(i int, n *node) {
		reply, err := n.run(ctx, prepareScript, epoch, believe)
		if err != nil || reply[0] != "ok" || len(reply) != 2 {
			return
		}
		if top, err := fencing.ParseToken(reply[1]); err == nil {
			reports[i] = quorum.Report{Known: true, Data: true, Epoch: epoch, Max: top}
		}
	})
	return reports
}

// mayRejoin reports whether a node that may not vote can come back now.
func (b *Backend) mayRejoin(reports []quorum.Report, states []state, index int) bool {
	read, _ := quorum.Believe(reports)
	_, majority := quorum.PlanRejoin(read)
	return majority && (states[index].doubted || states[index].since >= b.quarantine(states))
}

// rejoin gives a node its vote back, if a majority has data. The steps are in this order for a reason: the join nonce
// is put first, so that what others began for an earlier loss is refused; the
// epochs are read after it; the majority has moved on before the node may vote.
func (e *epochs) rejoin(ctx context.Context, index int) error {
	b := e.backend
	n := b.nodes[index]
	nonce := lease.NewSessionID().String()
	reply, err := n.run(ctx, joinScript, nonce)
	if err != nil || reply[0] == "data" {
		return err
	}
	states, errs := b.states(ctx)
	reports, believed := quorum.Believe(reportsOf(states, errs))
	epoch, ok := quorum.PlanRejoin(reports)
	if !ok {
		return ErrNoData
	}
	quarantine := b.quarantine(states)
	if left := quarantine - states[index].since; left > 0 && !states[index].doubted {
		return fmt.Errorf("%w: %s is in quarantine for %v more", lease.ErrUnavailable, n.addr, left)
	}
	floor, ok := quorum.Floor(reports, e.prepare(ctx, epoch, believed), epoch)
	if !ok {
		return ErrNoData
	}
	return n.initialise(ctx, nonce, epoch, floor, quarantine, quarantine, believed)
}

// quarantine is how long an emptied node is kept out: the longest TTL of any
// process. Whoever was granted something has told its MaxTTL to a majority, and
// so has who brings a node back heard of a majority.
func (b *Backend) quarantine(states []state) time.Duration {
	return max(b.config.MaxTTL, longestTTL(states))
}

func longestTTL(states []state) (longest time.Duration) {
	for _, s := range states {
		longest = max(longest, s.maxTTL)
	}
	return longest
}

// initialise is the last step of a rejoin.
func (n *node) initialise(ctx context.Context, nonce string, epoch uint64, floor fencing.Token, quarantine, maxTTL time.Duration, believed bool) error {
	n.mu.Lock()
	runID, durable := n.runID, n.durable
	n.mu.Unlock()
	reply, err := n.run(ctx, initScript,
		nonce, epoch, floor.String(), quarantine.Milliseconds(), runID, maxTTL.Milliseconds(), durable, believed)
	if err != nil {
		return err
	}
	if reply[0] != "ok" && reply[0] != "data" {
		return fmt.Errorf("%w: init of %s: %s", lease.ErrUnavailable, n.addr, strings.Join(reply, " "))
	}
	return nil
}

// turn has every node forget the locks that nobody uses. A node that cannot be
// asked now is asked the next time.
func (b *Backend) turn(ctx context.Context) {
	b.each(func(_ int, n *node) {
		_, _ = n.run(ctx, turnScript, b.config.IdleCounters.Milliseconds())
	})
}

func epochText(epoch uint64) string { return strconv.FormatUint(epoch, 10) }

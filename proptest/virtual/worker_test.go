package virtual

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/linear"
	"github.com/leased-project/leased/proptest/property"
)

// habits are how the workers of a run behave.
type habits struct {
	resources []fencing.Resource
	think     time.Duration // the longest time between two steps
	lag       time.Duration // the longest way to the storage, mostly
	stubborn  int           // percent of holds in which nobody looks whether the lease is lost
	forget    int           // percent of leases that are neither renewed nor released
	lose      int           // percent of answers of the storage that get lost
	inspect   int           // percent of rounds that begin with a look at the lock
}

// worker does read-modify-write under leases of its process.
type worker struct {
	*process
	habits
	storage *registers
	dice    *rand.Rand
}

func (w *worker) some(most time.Duration) time.Duration {
	return time.Duration(w.dice.Int64N(int64(most) + 1))
}

func (w *worker) chance(percent int) bool { return w.dice.IntN(100) < percent }

// wait lets time pass, or less if ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// run works until ctx ends.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		name := w.resources[w.dice.IntN(len(w.resources))]
		if w.chance(w.inspect) {
			w.look(ctx, name)
		}
		fixed := w.chance(w.forget)
		var options []lease.AcquireOption
		if fixed {
			options = append(options, lease.WithoutRenewal())
		}
		var l *lease.Lease
		var err error
		if w.chance(25) {
			l, err = w.client.TryAcquire(ctx, name, options...)
		} else {
			l, err = w.client.Acquire(ctx, name, append(options, lease.WithWaitLimit(time.Second+w.some(20*time.Second)))...)
		}
		if err != nil {
			wait(ctx, 100*time.Millisecond+w.some(time.Second))
			continue
		}
		w.hold(ctx, l, fixed)
	}
}

// hold works under a lease. It always enters before it reads; it does not
// always look whether the lease is still its own.
func (w *worker) hold(ctx context.Context, l *lease.Lease, forget bool) {
	if l.Err() != nil || !w.begin(l.Resource(), l.Token()) {
		return
	}
	stop := context.AfterFunc(l.Context(), func() {
		w.step()
		w.over(l.Resource(), l.Token())
	})
	stubborn := w.chance(w.stubborn)
	alive := func() bool { w.step(); return ctx.Err() == nil && (stubborn || l.Err() == nil) }
	if alive() && w.enter(l) {
		for n := 1 + w.dice.IntN(3); n > 0 && alive(); n-- {
			seen, ok := w.read(l)
			wait(l.Context(), w.some(w.think))
			if stubborn {
				wait(ctx, w.some(2*w.think))
			}
			if !ok || !alive() || !w.write(l, seen) {
				break
			}
		}
	}
	w.step()
	if forget && ctx.Err() == nil {
		return // it runs out by itself, and the context then tells
	}
	stop()
	w.over(l.Resource(), l.Token())
	_ = l.Release(ctx) // if it fails the client tries again
	w.step()
}

// exchange has the storage do something, at some time, and waits for the answer
// for a while. It reports whether there was one.
func (w *worker) exchange(do func()) (answered bool) {
	there, back, lost := w.trip(), w.trip(), w.chance(w.lose)
	done := make(chan struct{})
	w.work.Go(func() {
		wait(context.Background(), there)
		do()
		wait(context.Background(), back)
		if !lost {
			close(done)
		}
	})
	select {
	case <-done:
		answered = true
	case <-time.After(10 * time.Second):
	}
	w.step()
	return answered
}

// trip is how long a message to or from the storage takes: sometimes very long.
func (w *worker) trip() time.Duration {
	if w.chance(2) {
		return w.some(20 * time.Second)
	}
	return w.some(w.lag)
}

func (w *worker) op(l *lease.Lease, kind linear.Kind) linear.Op {
	return linear.Op{Client: w.number, Resource: l.Resource(), Kind: kind, Token: l.Token(), Call: w.story.now()}
}

// note keeps an operation as the client saw it.
func (w *worker) note(op linear.Op, answered bool, err error) {
	op.Return = w.story.now()
	var stale *fencing.StaleError
	switch {
	case !answered:
		op.Outcome = linear.Unknown
	case errors.As(err, &stale):
		op.Outcome = linear.Stale
	default:
		op.Outcome = linear.Done
	}
	w.story.saw(op)
}

func (w *worker) enter(l *lease.Lease) bool {
	op := w.op(l, linear.Enter)
	result := make(chan error, 1)
	answered := w.exchange(func() { result <- w.storage.enter(l.Resource(), l.Token()) })
	if !answered {
		w.note(op, false, nil)
		return false
	}
	err := <-result
	w.note(op, true, err)
	return err == nil
}

func (w *worker) read(l *lease.Lease) (uint64, bool) {
	op := w.op(l, linear.Read)
	result := make(chan uint64, 1)
	answered := w.exchange(func() { result <- w.storage.read(l.Resource()) })
	if answered {
		op.Value = <-result
		w.note(op, true, nil)
	}
	return op.Value, answered
}

// write is false when the lease is of no more use: the write was refused, or
// its outcome is open. A fence does not order one holder's own retries.
func (w *worker) write(l *lease.Lease, seen uint64) bool {
	op := w.op(l, linear.Write)
	op.Value = seen + 1
	number := w.story.nextOp()
	e := property.Event{Kind: property.Sent, Who: w.name, Resource: l.Resource(), Token: l.Token(), Op: number}
	w.story.tell(e)
	result := make(chan error, 1)
	answered := w.exchange(func() { result <- w.storage.write(l.Resource(), l.Token(), number, seen) })
	if !answered {
		w.note(op, false, nil)
		return false
	}
	err := <-result
	w.note(op, true, err)
	e.Kind = property.Acknowledged
	if err != nil {
		e.Kind = property.Rejected
	}
	w.story.tell(e)
	return err == nil
}

// look inspects the lock: what was told to anyone before it must show.
func (w *worker) look(ctx context.Context, name fencing.Resource) {
	before := w.story.largest(name)
	status, err := w.client.Inspect(ctx, name)
	if err != nil {
		return
	}
	for _, holder := range status.Holders {
		if status.Mode == engine.Correctness && holder.Token < before {
			w.story.broken("%s was told that token %d holds %s, after token %d was granted", w.name, holder.Token, name, before)
		}
	}
}

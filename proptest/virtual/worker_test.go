package virtual

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

// behavior is the behavior of the workers of a run.
type behavior struct {
	resources   []fencing.Resource
	think       time.Duration // maximal time between two steps
	lag         time.Duration // usual maximal delay to the storage
	ignoresLoss int           // percent of leases whose worker ignores their loss
	forget      int           // percent of leases that are neither renewed nor released
	lose        int           // percent of lost answers of the storage
	inspect     int           // percent of rounds that start with Inspect
}

// worker does read-modify-write under leases of its process.
type worker struct {
	*process
	behavior
	storage *registers
	random  *rand.Rand
}

func (w *worker) some(most time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(most) + 1))
}

func (w *worker) chance(percent int) bool { return w.random.IntN(100) < percent }

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// run works until ctx ends.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		name := w.resources[w.random.IntN(len(w.resources))]
		if w.chance(w.inspect) {
			w.inspectLock(ctx, name)
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

// hold works under a lease. It always enters before it reads; it does not always check
// the lease.
func (w *worker) hold(ctx context.Context, l *lease.Lease, forget bool) {
	if l.Err() != nil || !w.begin(l.Resource(), l.Token()) {
		return
	}
	stop := context.AfterFunc(l.Context(), func() {
		w.step()
		w.over(l.Resource(), l.Token())
	})
	ignoresLoss := w.chance(w.ignoresLoss)
	alive := func() bool { w.step(); return ctx.Err() == nil && (ignoresLoss || l.Err() == nil) }
	if alive() && w.enter(l) {
		for n := 1 + w.random.IntN(3); n > 0 && alive(); n-- {
			seen, ok := w.read(l)
			wait(l.Context(), w.some(w.think))
			if ignoresLoss {
				wait(ctx, w.some(2*w.think))
			}
			if !ok || !alive() || !w.write(l, seen) {
				break
			}
		}
	}
	w.step()
	if forget && ctx.Err() == nil {
		return // it expires, which ends its context
	}
	stop()
	w.over(l.Resource(), l.Token())
	_ = l.Release(ctx) // the client retries
	w.step()
}

// exchange executes an operation on the storage after a delay and waits for the answer.
// It reports whether the answer arrived.
func (w *worker) exchange(do func()) (answered bool) {
	there, back, lost := w.delay(), w.delay(), w.chance(w.lose)
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

// delay returns the delay of a message to or from the storage, which is sometimes long.
func (w *worker) delay() time.Duration {
	if w.chance(2) {
		return w.some(20 * time.Second)
	}
	return w.some(w.lag)
}

func (w *worker) op(l *lease.Lease, access property.Access) property.Op {
	return property.Op{Client: w.number, Resource: l.Resource(), Access: access, Token: l.Token(), Call: w.history.now()}
}

// note records the outcome of an operation.
func (w *worker) note(op property.Op, answered bool, err error) {
	op.Return = w.history.now()
	var stale *fencing.StaleError
	switch {
	case !answered:
		op.Answer = 0 // unknown
	case errors.As(err, &stale):
		op.Answer = property.Rejected
	default:
		op.Answer = property.Acknowledged
	}
	w.history.saw(op)
}

func (w *worker) enter(l *lease.Lease) bool {
	op := w.op(l, property.Enter)
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
	op := w.op(l, property.Read)
	result := make(chan uint64, 1)
	answered := w.exchange(func() { result <- w.storage.read(l.Resource()) })
	if answered {
		op.Value = <-result
		w.note(op, true, nil)
	}
	return op.Value, answered
}

// write reports false if the write was refused or its outcome is unknown. The lease must
// not be used then: a fence does not order the retries of one holder.
func (w *worker) write(l *lease.Lease, seen uint64) bool {
	op := w.op(l, property.Write)
	op.Value = seen + 1
	number := w.history.nextOp()
	e := property.Event{Kind: property.Sent, Who: w.name, Resource: l.Resource(), Token: l.Token(), Op: number}
	w.history.record(e)
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
	w.history.record(e)
	return err == nil
}

// inspectLock inspects the lock: the result must not be older than the last grant.
func (w *worker) inspectLock(ctx context.Context, name fencing.Resource) {
	before := w.history.largest(name)
	status, err := w.client.Inspect(ctx, name)
	if err != nil {
		return
	}
	for _, holder := range status.Holders {
		if status.Mode == engine.Correctness && holder.Token < before {
			w.history.broken("%s read that token %d holds %s after token %d was granted", w.name, holder.Token, name, before)
		}
	}
}

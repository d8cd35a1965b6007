package sim

import (
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

// Step is a point between two actions of a client.
type Step uint8

// The steps of a client. It can be paused before each of them.
const (
	AboutToAcquire Step = iota
	AboutToUse          // it received its lease
	AboutToEnter
	AboutToRead
	AboutToCheck // its deadline
	AboutToWrite // after the check
	AboutToRenew
	AboutToRelease
	AboutToExtend
	steps // how many there are
)

var stepNames = [...]string{"acquiring", "using the lease", "entering the gate", "reading", "the check of its deadline",
	"the write, the deadline checked", "renewing", "releasing",
	"extending the lease"}

// String names the next action.
func (s Step) String() string { return stepNames[s] }

// gateTimeout bounds one operation on the storage.
const gateTimeout = 400 * time.Millisecond

// attempt is one acquisition of a client, and its lease once granted.
type attempt struct {
	lock      int
	name      fencing.Resource
	core      clientcore.Call
	request   engine.Request
	asks      int              // answers to earlier asks are ignored
	key       property.Attempt // for the property checker
	requested time.Duration
	grant     *clientcore.Grant // once granted
	token     fencing.Token     // once granted
	over      bool              // denied, abandoned, lost or released
	writes    int               // remaining
}

// client is a process that uses locks, one at a time. Its decisions are those of
// package clientcore.
type client struct {
	*process
	w       *World
	core    *clientcore.Core
	engines map[engine.Mode]locks // AnyMode if there is one
	follow  *topologyFollower     // of the topology; nil without a service of both modes
	policy  engine.Policy
	armed   [steps]time.Duration // pauses at a later step
	count   uint16               // sessions so far
	current *attempt
}

// begin starts the client, without any state.
func (c *client) begin() {
	c.current = nil
	c.core = clientcore.New(clientcore.Random{Jitter: c.w.random, NewID: func() engine.SessionID {
		c.count++
		return engine.SessionID{byte(c.number), byte(c.count >> 8), byte(c.count)}
	}})
	for _, mode := range []engine.Mode{engine.AnyMode, engine.Efficiency, engine.Correctness} {
		if e := c.engines[mode]; e != nil {
			e.start()
		}
	}
	if c.follow != nil {
		c.follow.start()
	}
	c.idle()
}

func (c *client) now() engine.Instant { return c.clock.instant(c.w.now) }

// step continues with the next action after a moment, or pauses before it.
func (c *client) step(s Step, do func()) {
	c.w.timer(c.process, c.w.random(50*time.Microsecond), do)
	if d := c.armed[s]; d > 0 {
		c.armed[s] = 0
		c.w.pause(c.process, d, PauseAtStep.String())
	}
}

// idle waits, then acquires a lock.
func (c *client) idle() {
	c.w.timer(c.process, c.w.random(c.w.plan.Think), func() { c.step(AboutToAcquire, c.acquireAny) })
}

// acquireAny begins an attempt for a random lock.
func (c *client) acquireAny() {
	lock, wait := c.w.rng.IntN(len(c.w.locks)), c.w.chance(75)
	if c.w.adopted(c) { // its locks must not be in correctness mode
		lock = max(lock, 1)
	}
	a := &attempt{lock: lock, name: c.w.locks[lock], requested: c.w.now, writes: 1 + c.w.rng.IntN(c.w.plan.Writes)}
	if c.w.healed { // a lock that was not granted since, briefly
		for i, served := range c.w.served {
			if !served {
				a.lock, a.name, a.writes, wait = i, c.w.locks[i], 1, true
			}
		}
	}
	a.request = engine.Request{Resources: []fencing.Resource{a.name}, Wait: wait, Holder: c.name}
	a.core = clientcore.Call{Request: &a.request, Try: !wait, Began: c.now(), Owner: a}
	c.current = a
	c.ask(a)
	timeout := 3*c.w.plan.TTL + c.w.random(5*c.w.plan.TTL)
	c.w.timer(c.process, timeout, func() {
		if a.token == fencing.None && !a.over {
			c.close(a) // nobody waits for it any more
		}
	})
}

// use works under a lease.
func (c *client) use(a *attempt) {
	c.w.emit(property.Event{Kind: property.Acquired, Who: c.name, Resource: a.name, Attempt: a.key, Token: a.token,
		Unlogged: a.grant.Held.Name != ""})
	if c.w.healed && a.requested >= c.w.plan.Length {
		c.w.served[a.lock] = true
	}
	c.step(AboutToUse, func() {
		if c.w.chance(20) {
			c.step(AboutToExtend, func() { c.extend(a) })
		}
		c.step(AboutToEnter, func() { c.enter(a) })
	})
}

// expired reports whether the lease has ended by the client's clock.
func (c *client) expired(a *attempt) bool {
	if a.grant.Check(c.now()) {
		c.end(a)
	}
	return a.grant.Err() != nil
}

// end records that the client no longer uses a lease, or waits for one.
func (c *client) end(a *attempt) {
	if a.over {
		return
	}
	a.over = true
	if a.token != fencing.None {
		c.w.emit(property.Event{Kind: property.Ended, Who: c.name, Resource: a.name, Attempt: a.key, Token: a.token})
	}
	c.idle()
}

// close ends an attempt and releases it.
func (c *client) close(a *attempt) {
	if a.over {
		return
	}
	c.end(a)
	c.step(AboutToRelease, func() { c.release(a) })
}

// call sends a request to the storage and waits for the answer. Requests to the storage
// are never repeated, since a repeated write may be applied twice.
func (c *client) call(do func(answer func(then func())), unknown func()) {
	answered := false
	life := c.life
	c.w.send(c.process, c.w.store.process, true, func() {
		do(func(then func()) {
			c.w.send(c.w.store.process, c.process, true, func() {
				if answered || life != c.life {
					return
				}
				answered = true
				then()
			})
		})
	})
	c.w.timer(c.process, gateTimeout, func() {
		if !answered {
			answered = true
			unknown()
		}
	})
}

// operation records the start of an operation at the gate. A write writes its number.
func (c *client) operation(access property.Access, a *attempt) property.Event {
	c.w.ops++
	e := property.Event{Who: c.name, Kind: property.Sent, Access: access, Resource: a.name, Token: a.token, Op: c.w.ops}
	if access == property.Write {
		e.Version = e.Op
	}
	c.w.emit(e)
	return e
}

// answered records the answer to an operation, with the value that it wrote or read.
func (c *client) answered(e property.Event, admitted bool, value uint64) {
	e.Kind, e.Version = property.Acknowledged, value
	if !admitted {
		e.Kind = property.Rejected
	}
	c.w.emit(e)
}

// enter raises the mark of the gate before the first read.
func (c *client) enter(a *attempt) {
	if a.over || c.expired(a) {
		c.close(a)
		return
	}
	if c.w.plan.Flaws.NoEnter {
		c.read(a)
		return
	}
	e := c.operation(property.Enter, a)
	c.call(func(answer func(func())) {
		ok := c.w.store.enter(a.name, a.token)
		answer(func() {
			c.answered(e, ok, 0)
			if !ok {
				c.close(a)
				return
			}
			c.step(AboutToRead, func() { c.read(a) })
		})
	}, func() { c.close(a) })
}

// read reads the data, then works on it.
func (c *client) read(a *attempt) {
	if a.over {
		return
	}
	e := c.operation(property.Read, a)
	c.call(func(answer func(func())) {
		found := *c.w.store.data[a.name]
		answer(func() {
			c.answered(e, true, found.value)
			c.w.timer(c.process, c.w.random(c.w.plan.Work), func() { // work
				c.step(AboutToCheck, func() { c.check(a, found.version) })
			})
		})
	}, func() { c.close(a) })
}

// check compares the clock with the deadline, the last step of a careful holder before it
// writes. A pause may follow.
func (c *client) check(a *attempt, seen uint64) {
	if a.over || c.expired(a) {
		c.close(a)
		return
	}
	c.step(AboutToWrite, func() { c.write(a, seen) })
}

// write sends the write even if the lease has expired since the check.
func (c *client) write(a *attempt, seen uint64) {
	e := c.operation(property.Write, a)
	c.call(func(answer func(func())) {
		c.w.store.write(a.name, a.token, e.Op, seen, func(applied bool) {
			answer(func() {
				c.answered(e, applied, e.Op)
				if !applied {
					c.close(a)
					return
				}
				c.next(a)
			})
		})
	}, func() {
		// It may still be applied. Only a new token prevents it from being applied
		// between the next read and write.
		if c.w.plan.Flaws.KeepsWriting {
			c.next(a)
			return
		}
		c.close(a)
	})
}

// next continues with the next write, or releases the lease.
func (c *client) next(a *attempt) {
	a.writes--
	if a.over {
		return
	}
	if a.writes <= 0 {
		c.close(a)
		return
	}
	c.step(AboutToRead, func() { c.read(a) })
}

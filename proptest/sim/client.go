package sim

import (
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/linear"
	"github.com/leased-project/leased/proptest/property"
)

// Step is where a client stands, between two things that it does.
type Step uint8

// The steps of a client. It can be paused before each of them.
const (
	AboutToAsk Step = iota
	AboutToUse      // it was told of its lease
	AboutToEnter
	AboutToRead
	AboutToCheck // whether its time has passed
	AboutToWrite // it has checked
	AboutToRenew
	AboutToRelease
	steps // how many there are
)

var stepNames = [...]string{"asking", "using the lease", "entering the gate", "reading", "the check of its deadline",
	"the write, the deadline checked", "renewing", "releasing"}

// String is what comes next.
func (s Step) String() string { return stepNames[s] }

const (
	// gateTimeout is how long a client waits for the storage.
	gateTimeout = 400 * time.Millisecond
	// askTimeout is how long it waits for an answer of the lock service.
	askTimeout = 500 * time.Millisecond
)

// service is how a client talks to the locks of one mode.
type service interface {
	// start is called once a life.
	start()
	// ask begins an attempt. It ends with client.granted or client.refused.
	ask(a *attempt)
	// release ends an attempt, whatever its state.
	release(a *attempt)
	// sent is a moment before the request was sent that the time of a granted
	// attempt counts from.
	sent(a *attempt) engine.Instant
}

// attempt is one try of a client to get a lock, and its lease if it gets it.
type attempt struct {
	lock    int
	name    fencing.Resource
	nonce   engine.Nonce
	key     property.Attempt // for the judge
	wait    bool
	asked   time.Duration
	token   fencing.Token  // once granted
	held    engine.Instant // when the answer came
	over    bool           // refused, given up, lost or released
	writes  int            // still to do
	session any            // what the service knows of it

	unlogged bool // it was granted in efficiency mode
}

// client is one user of the locks: a process with one thing to do at a time.
type client struct {
	*process
	w       *World
	service service
	policy  engine.Policy
	armed   [steps]time.Duration // pauses that wait for a step
	nonces  engine.Nonce
	current *attempt
}

func newClient(w *World, name string) *client {
	return &client{process: w.newProcess(name), w: w, policy: engine.Policy{TTL: w.plan.TTL}.Filled()}
}

// begin is the start of a life.
func (c *client) begin() {
	c.current = nil
	c.service.start()
	c.idle()
}

func (c *client) now() engine.Instant { return c.clock.instant(c.w.now) }

// step goes on to what comes next, after a moment, unless a pause waits there.
func (c *client) step(s Step, do func()) {
	c.w.timer(c.process, c.w.random(50*time.Microsecond), do)
	if d := c.armed[s]; d > 0 {
		c.armed[s] = 0
		c.w.pause(c.process, d, PauseAtStep.String())
	}
}

// idle thinks, then wants a lock.
func (c *client) idle() {
	c.w.timer(c.process, c.w.random(c.w.plan.Think), func() { c.step(AboutToAsk, c.want) })
}

func (c *client) want() {
	c.nonces++
	lock := c.w.rng.IntN(len(c.w.locks))
	a := &attempt{lock: lock, name: c.w.locks[lock], nonce: c.nonces, key: c.key(c.nonces), wait: c.w.chance(75), asked: c.w.now,
		writes: 1 + c.w.rng.IntN(c.w.plan.Writes)}
	if c.w.healed { // what nobody was granted since, and shortly
		for i, served := range c.w.served {
			if !served {
				a.lock, a.name, a.writes, a.wait = i, c.w.locks[i], 1, true
			}
		}
	}
	c.current = a
	c.w.emit(property.Event{Kind: property.Requested, Who: c.name, Resource: a.name, Attempt: a.key})
	c.service.ask(a)
	timeout := 3*c.w.plan.TTL + c.w.random(5*c.w.plan.TTL)
	c.w.timer(c.process, timeout, func() {
		if a.token == fencing.None && !a.over { // it does not want it any more
			c.close(a)
		}
	})
}

// granted takes an answer of the service. It is asked whether the lease can
// still be used: production hands out none that has run out on its way.
func (c *client) granted(a *attempt, key property.Attempt, token fencing.Token) {
	if a.over || a.token != fencing.None {
		return
	}
	a.token, a.key, a.held = token, key, c.now()
	if c.expired(a) {
		a.token = fencing.None
		c.close(a)
		return
	}
	c.w.emit(property.Event{Kind: property.Acquired, Who: c.name, Resource: a.name, Attempt: a.key, Token: token, Unlogged: a.unlogged})
	if c.w.healed {
		c.w.servedLock(a)
	}
	c.watch(a)
	c.step(AboutToUse, func() { c.step(AboutToEnter, func() { c.enter(a) }) })
}

// refused ends an attempt that was not granted, for certain.
func (c *client) refused(a *attempt) {
	if a.over || a.token != fencing.None {
		return
	}
	a.over = true
	c.w.emit(property.Event{Kind: property.Denied, Who: c.name, Resource: a.name, Attempt: a.key})
	c.idle()
}

// deadline is lease's own arithmetic.
func (c *client) deadline(a *attempt) engine.Instant {
	from := c.service.sent(a)
	if c.w.plan.Flaws.LateValidity && from.Until(a.held) > 0 {
		from = a.held
	}
	return from.Add(c.policy.TTL - c.policy.Drift)
}

func (c *client) expired(a *attempt) bool { return c.now().Until(c.deadline(a)) <= 0 }

// watch ends the lease when its time has passed, whatever the client does.
func (c *client) watch(a *attempt) {
	left := c.now().Until(c.deadline(a))
	c.w.timer(c.process, min(max(left, time.Millisecond), time.Second), func() {
		switch {
		case a.over:
		case c.expired(a):
			c.close(a)
		default:
			c.watch(a)
		}
	})
}

// lost is what the service says of a lease that is over.
func (c *client) lost(a *attempt) {
	if !a.over {
		c.close(a)
	}
}

// close ends an attempt and everything under it, and gives it back.
func (c *client) close(a *attempt) {
	if a.over {
		return
	}
	a.over = true
	if a.token != fencing.None {
		c.w.emit(property.Event{Kind: property.Ended, Who: c.name, Resource: a.name, Attempt: a.key, Token: a.token})
	}
	c.step(AboutToRelease, func() { c.service.release(a) })
	c.idle()
}

// call asks the storage, and waits for its answer for a while. Nothing is sent
// twice to the storage: who sends a write again must be ready to see it twice.
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

// enter raises the mark of the gate, before anything is read.
func (c *client) enter(a *attempt) {
	if a.over || c.expired(a) {
		c.close(a)
		return
	}
	if c.w.plan.Flaws.NoEnter {
		c.read(a)
		return
	}
	note, ok := c.w.sees(c, linear.Enter, a, 0), false
	c.call(func(answer func(func())) {
		ok = c.w.store.enter(a.name, a.token)
		answer(func() {
			c.w.saw(note, 0, outcome(ok))
			if !ok {
				c.close(a)
				return
			}
			c.step(AboutToRead, func() { c.read(a) })
		})
	}, func() { c.close(a) })
}

// read, then change what was read.
func (c *client) read(a *attempt) {
	if a.over {
		return
	}
	note := c.w.sees(c, linear.Read, a, 0)
	c.call(func(answer func(func())) {
		found := *c.w.store.data[a.name]
		answer(func() {
			c.w.saw(note, found.value, linear.Done)
			c.w.timer(c.process, c.w.random(c.w.plan.Work), func() { // it works out what to write
				c.step(AboutToCheck, func() { c.check(a, found.version) })
			})
		})
	}, func() { c.close(a) })
}

// check looks at the clock: the last thing that a careful holder does before it
// writes. It may be paused right after.
func (c *client) check(a *attempt, seen uint64) {
	if a.over || c.expired(a) {
		c.close(a)
		return
	}
	c.step(AboutToWrite, func() { c.write(a, seen) })
}

// write is sent even if the lease is over by now: nobody can know that in time.
func (c *client) write(a *attempt, seen uint64) {
	c.w.ops++
	op := c.w.ops
	note := c.w.sees(c, linear.Write, a, op)
	e := property.Event{Who: c.name, Kind: property.Sent, Resource: a.name, Token: a.token, Op: op}
	c.w.emit(e)
	c.call(func(answer func(func())) {
		c.w.store.write(a.name, a.token, op, seen, op, func(applied bool) {
			answer(func() { c.wrote(a, e, applied, note) })
		})
	}, func() {
		// It may be applied yet. Only a new token keeps it from landing between the
		// next read and write.
		if c.w.plan.Flaws.KeepsWriting {
			c.next(a)
			return
		}
		c.close(a)
	})
}

func (c *client) wrote(a *attempt, e property.Event, applied bool, note int) {
	c.w.saw(note, e.Op, outcome(applied))
	e.Kind = property.Acknowledged
	if !applied {
		e.Kind = property.Rejected
	}
	c.w.emit(e)
	if !applied {
		c.close(a)
		return
	}
	c.next(a)
}

// next goes on with the next change, or gives the lease back.
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

func outcome(done bool) linear.Outcome {
	if done {
		return linear.Done
	}
	return linear.Stale
}

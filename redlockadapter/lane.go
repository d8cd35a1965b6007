package redlockadapter

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/lease"
)

// op is one attempt's part of a script call. It is shared by all lanes, and not
// changed once it is pushed. answer is called exactly once for each lane, on the lane's goroutine
// or before push returns, and must not block.
type op struct {
	script *script
	head   args // what the ops of one call have in common
	args   args
	answer func(node int, a answer)
	// late, if not nil, gives the args when the op is sent: by then what was sent
	// before it on the lane has been answered, or has failed.
	late func(node int) args
	// stop, if not nil and true, makes a lane drop what it has not sent yet.
	stop *atomic.Bool
}

// args are arguments of a script, as they are sent.
type args struct {
	text  string
	count int
}

func newArgs(all ...string) args {
	size := 0
	for _, arg := range all {
		size += len(arg) + 12
	}
	b := make([]byte, 0, size)
	for _, arg := range all {
		b = appendArg(b, arg)
	}
	return args{string(b), len(all)}
}

// answer is what a node says to an op. With err set text is empty; sent then
// tells whether the node may have carried it out.
type answer struct {
	text string
	err  error
	sent bool
}

// A lane that failed waits before it tries again, so that a dead node costs
// little. Doubled with each failure.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// lane is the one ordered stream of scripts to a node. Who finds it idle writes
// to the node at once. While an exchange is under way the next collects: that is
// where concurrent callers share round trips, system calls and script calls. In an
// exchange releases come first, so that a lock passed on inside the process is
// free when the next asks for it.
type lane struct {
	backend *Backend
	index   int
	node    *node

	wake chan struct{} // there is something to send, and no link
	done chan struct{} // closed when run has ended

	mu       sync.Mutex
	link     *link // nil while there is none
	busy     bool  // an exchange is under way
	pending  []*op
	closed   bool
	exchange exchange
	began    lease.Instant // the exchange
	watch    *time.Timer   // nil if nobody watches over the exchange

	// Only run uses these.
	failures int
	failed   lease.Instant
	lastErr  error
}

func newLane(b *Backend, index int, n *node) *lane {
	return &lane{backend: b, index: index, node: n, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// push puts an op behind those that wait, or sends it, with those that were held
// back. It does not wait for the node.
func (l *lane) push(o *op) {
	if l.hold(o) {
		l.flush()
	}
}

// hold is push, but leaves the sending to whoever pushes next, or to a flush that
// must follow. It reports whether it can be sent at once.
func (l *lane) hold(o *op) bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		o.answer(l.index, answer{err: errLaneClosed})
		return false
	}
	l.pending = append(l.pending, o)
	down, idle := l.link == nil, !l.busy
	l.mu.Unlock()
	if down {
		l.poke()
	}
	return !down && idle
}

// flush sends what is pending if nothing is under way.
func (l *lane) flush() {
	l.mu.Lock()
	if l.link == nil || l.busy || len(l.pending) == 0 {
		l.mu.Unlock()
		return
	}
	l.busy = true
	k := l.link
	l.mu.Unlock()
	if !l.sendPending(k, nil) {
		k.close() // the lane was closed meanwhile, and this was the last
	}
}

func (l *lane) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// close ends the lane after what is pending.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	if l.link != nil && !l.busy {
		l.link.close()
	}
	l.mu.Unlock()
	l.poke()
	<-l.done
}

// run makes links and reads from them. ready is called when the first link is
// made, or could not be.
func (l *lane) run(ready func()) {
	defer close(l.done)
	err := l.connect()
	ready()
	if err == nil {
		l.serve()
	}
	l.poke() // to look at what was pushed, or at the end, meanwhile
	for range l.wake {
		for {
			l.mu.Lock()
			idle, closed := len(l.pending) == 0, l.closed
			l.mu.Unlock()
			if idle && closed {
				return
			}
			if idle {
				break
			}
			if err := l.connect(); err != nil {
				l.giveUp(err)
				continue
			}
			l.serve()
		}
	}
}

// connect makes a link, unless that has failed a moment ago.
func (l *lane) connect() error {
	if l.failures > 0 && l.backend.clock.Now().Since(l.failed) < min(minBackoff<<min(l.failures, 6), maxBackoff) {
		return l.lastErr
	}
	k, err := l.node.dialLink(l.backend.config.NodeTimeout)
	if err != nil {
		return l.note(err)
	}
	if l.failures > 0 {
		l.backend.epochs.poke() // it may have come back without its data
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.link, l.busy = k, true
	return nil
}

// note keeps the books of failures.
func (l *lane) note(err error) error {
	l.failures++
	l.lastErr = errors.Join(errNodeDown, err)
	l.failed = l.backend.clock.Now()
	return l.lastErr
}

// giveUp answers what is pending.
func (l *lane) giveUp(err error) {
	l.mu.Lock()
	batch := l.pending
	l.pending = nil
	l.mu.Unlock()
	for _, o := range batch {
		o.answer(l.index, answer{err: err})
	}
}

// serve reads the answers on the link, and sends what has been collected
// meanwhile, until the link breaks or the lane is closed.
func (l *lane) serve() {
	k := l.link // set by connect; only this goroutine changes it
	for l.sendPending(k, k.commands[:0]) {
		again := true
		for again {
			text, err := k.read()
			var no refusal
			if err != nil && !errors.As(err, &no) {
				l.broken(k, err)
				return
			}
			if no.ends() {
				l.broken(k, err)
				return
			}
			l.failures = 0
			if again, err = l.heard(text, err); err != nil {
				l.broken(k, err)
				return
			}
		}
	}
	l.mu.Lock()
	l.link, l.busy = nil, false
	l.mu.Unlock()
	k.close()
}

// sendPending sends what has collected, written into room. It reports whether there is anything to
// read for: not if the lane is closed.
func (l *lane) sendPending(k *link, room []byte) bool {
	for {
		l.mu.Lock()
		if l.link != k {
			l.mu.Unlock()
			return true // it broke; what is pending goes over the next
		}
		batch := l.pending
		if len(batch) == 0 {
			l.busy = false
			closed := l.closed
			l.mu.Unlock()
			return !closed
		}
		l.pending, k.batch = k.batch[:0], batch
		l.busy = true
		l.mu.Unlock()
		if l.send(k, batch, room) {
			return true
		}
	}
}

// send begins an exchange. The caller has made the lane busy. It reports whether
// anything was sent, or will be.
func (l *lane) send(k *link, batch []*op, room []byte) bool {
	x := l.collect(k, batch)
	clear(batch)
	if len(x.calls) == 0 {
		return false
	}
	commands := x.encode(k, room)
	now := l.backend.clock.Now()
	l.mu.Lock()
	if l.link != k { // it broke when it was idle, so nothing is lost yet
		l.mu.Unlock()
		for _, c := range x.calls {
			for _, o := range c.ops {
				l.push(o)
			}
		}
		return true
	}
	l.exchange, l.began = x, now
	if l.watch == nil {
		l.watch = time.AfterFunc(l.backend.config.NodeTimeout, l.overdue)
	}
	l.mu.Unlock()
	k.write(commands)
	if room != nil {
		k.commands = commands // only the lane's goroutine gives room
	}
	return true
}

// overdue ends a link whose node does not answer.
func (l *lane) overdue() {
	now := l.backend.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.backend.config.NodeTimeout - now.Since(l.began)
	switch {
	case !l.busy || l.link == nil:
		l.watch = nil
	case left <= 0:
		l.watch = nil
		_ = l.link.conn.Close() // whoever reads from it tells
	default:
		l.watch.Reset(left)
	}
}

// broken ends a link. What was asked and not answered may have been done.
func (l *lane) broken(k *link, err error) {
	k.close()
	l.mu.Lock()
	l.link, l.busy = nil, false
	x := l.exchange
	l.exchange = exchange{}
	l.mu.Unlock()
	if x.next == len(x.calls) { // nobody waited; a new link is made when it is needed
		l.backend.epochs.poke()
		return
	}
	err = l.note(err)
	for _, c := range append(x.again, x.calls[x.next:]...) {
		for _, o := range c.ops {
			o.answer(l.index, answer{err: err, sent: true})
		}
	}
}

// heard takes in an answer. It reports whether more are to be read before
// anything else is sent.
func (l *lane) heard(text string, err error) (again bool, _ error) {
	l.mu.Lock()
	x := &l.exchange
	if x.next == len(x.calls) {
		l.mu.Unlock()
		return false, errProtocol
	}
	c := &x.calls[x.next]
	x.next++
	over := x.next == len(x.calls)
	unknown := err != nil && !x.taught && strings.HasPrefix(err.Error(), "NOSCRIPT")
	if unknown { // it was not run
		x.again = append(x.again, *c)
	}
	l.mu.Unlock()
	if !unknown {
		l.hand(c, text, err)
	}
	if !over {
		return true, nil
	}
	if len(x.again) > 0 {
		l.teach(x.again)
		return true, nil
	}
	if x.ops > 1 {
		// Those who were answered may have something for the next exchange.
		runtime.Gosched()
	}
	return false, nil
}

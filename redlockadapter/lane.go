package redlockadapter

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease"
)

// op is one attempt's part of a script call. Its keys and args are made once and
// shared by all lanes. answer is called exactly once for each lane, on the
// lane's goroutine, and must not block.
type op struct {
	script *script
	epoch  string // of the attempt, where the script asks for it
	keys   []any
	args   []any
	answer func(node int, a answer)
	// late, if not nil, gives the args when the op is sent: by then what was sent
	// before it on the lane has been answered, or has failed.
	late func(node int) []any
	// stop, if not nil and true, makes a lane drop what it has not sent yet.
	stop *atomic.Bool
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

// lane is the one ordered stream of scripts to a node. While one exchange is
// under way the next collects: that is where concurrent callers share round
// trips, system calls and script calls. In an exchange releases come first, so
// that a lock passed on inside the process is free when the next asks for it.
type lane struct {
	backend *Backend
	index   int
	client  *redis.Client

	wake chan struct{}
	done chan struct{} // closed when run has ended

	mu      sync.Mutex
	pending []op
	closed  bool

	// Only run uses these.
	failures int
	failed   lease.Instant
	lastErr  error
}

func newLane(b *Backend, index int, client *redis.Client) *lane {
	return &lane{backend: b, index: index, client: client, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// push puts an op behind those that wait. It never blocks.
func (l *lane) push(o op) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		o.answer(l.index, answer{err: errLaneClosed})
		return
	}
	l.pending = append(l.pending, o)
	first := len(l.pending) == 1
	l.mu.Unlock()
	if first {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// close ends the lane after what is pending.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	<-l.done
}

func (l *lane) run() {
	defer close(l.done)
	var spare []op
	for range l.wake {
		for {
			// Those who can run now may have something for the same exchange.
			// Where nobody can, this costs nothing.
			runtime.Gosched()
			l.mu.Lock()
			batch, closed := l.pending, l.closed
			l.pending = spare[:0]
			l.mu.Unlock()
			if len(batch) == 0 {
				if closed {
					return
				}
				spare = batch
				break
			}
			l.exchange(batch)
			clear(batch)
			spare = batch
		}
	}
}

// laneOrder is the order of the scripts within one exchange.
var laneOrder = [...]*script{releaseScript, acquireScript, raiseScript, renewScript, inspectScript}

// call is one script call of an exchange, with the ops that it carries.
type call struct {
	cmd *redis.StringSliceCmd
	ops []op
}

// exchange sends a batch and hands out the answers.
func (l *lane) exchange(batch []op) {
	if l.failures > 0 && l.backend.clock.Now().Since(l.failed) < min(minBackoff<<min(l.failures, 6), maxBackoff) {
		for _, o := range batch {
			o.answer(l.index, answer{err: l.lastErr})
		}
		return
	}
	var calls []call
	for _, s := range laneOrder {
		calls = l.collect(calls, s, batch)
	}
	if len(calls) == 0 {
		return
	}
	err := l.send(calls)
	l.note(err)
	for _, c := range calls {
		l.hand(c)
	}
}

// collect groups the ops of one script into calls.
func (l *lane) collect(calls []call, s *script, batch []op) []call {
	var ops []op
	nkeys := 0
	for _, o := range batch {
		if o.script != s {
			continue
		}
		if o.stop != nil && o.stop.Load() {
			o.answer(l.index, answer{err: errNotSent})
			continue
		}
		if len(ops) > 0 && (len(ops) == maxBatch || nkeys+len(o.keys) > 4*maxBatch || s == inspectScript || ops[0].epoch != o.epoch) {
			calls = append(calls, l.call(s, ops, nkeys))
			ops, nkeys = nil, 0
		}
		ops = append(ops, o)
		nkeys += len(o.keys)
	}
	if len(ops) > 0 {
		calls = append(calls, l.call(s, ops, nkeys))
	}
	return calls
}

// call makes the command for some ops of one script.
func (l *lane) call(s *script, ops []op, nkeys int) call {
	keys, args := l.backend.head(s, ops[0].epoch)
	all := make([]any, 0, 3+len(keys)+nkeys+len(args)+5*len(ops))
	all = append(all, "evalsha", s.sha, len(keys)+nkeys)
	all = append(all, keys...)
	for i := range ops {
		all = append(all, ops[i].keys...)
	}
	all = append(all, args...)
	for i := range ops {
		if ops[i].late != nil {
			all = append(all, ops[i].late(l.index)...)
		} else {
			all = append(all, ops[i].args...)
		}
	}
	return call{cmd: redis.NewStringSliceCmd(context.Background(), all...), ops: ops}
}

// send makes the exchange. A node that does not know a script has not run it:
// it is told the scripts, and asked again.
func (l *lane) send(calls []call) error {
	err := l.process(calls)
	if err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT") {
		return err
	}
	if err := loadScripts(context.Background(), l.client); err != nil {
		return err
	}
	var again []call
	for _, c := range calls {
		if err := c.cmd.Err(); err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			c.cmd.SetErr(nil)
			again = append(again, c)
		}
	}
	return l.process(again)
}

func (l *lane) process(calls []call) error {
	ctx := context.Background() // the client's own timeouts bound it
	if len(calls) == 1 {
		return l.client.Process(ctx, calls[0].cmd)
	}
	pipe := l.client.Pipeline()
	for _, c := range calls {
		_ = pipe.Process(ctx, c.cmd) // queued; the error comes with Exec
	}
	_, err := pipe.Exec(ctx)
	return err
}

// note keeps the books of failures. An answer, also an unwelcome one, is none.
func (l *lane) note(err error) {
	var reply redis.Error
	if err == nil || errors.As(err, &reply) {
		if l.failures > 0 {
			l.backend.epochs.poke() // it may have come back without its data
		}
		l.failures = 0
		return
	}
	l.failures++
	l.lastErr = errors.Join(errNodeDown, err)
	l.failed = l.backend.clock.Now()
}

// hand gives each op its answer.
func (l *lane) hand(c call) {
	reply, err := c.cmd.Result()
	if err == nil && len(reply) > 0 && reply[0] == "ok" {
		if c.ops[0].script == inspectScript {
			c.ops[0].answer(l.index, answer{text: strings.Join(reply[1:], "\x00")})
			return
		}
		if len(reply) == 1+len(c.ops) {
			for i := range c.ops {
				c.ops[i].answer(l.index, answer{text: reply[1+i]})
			}
			return
		}
	}
	a := answer{err: err, sent: err != nil}
	if err == nil {
		a.text = strings.Join(reply, " ") // the node as a whole has refused
		l.backend.refused(a.text)
	}
	for i := range c.ops {
		c.ops[i].answer(l.index, a)
	}
}

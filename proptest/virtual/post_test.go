package virtual

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// post carries what a process says to the service, and the answers. Messages
// take a while, sometimes a long one; some arrive a second time, later; and one
// whose sender has given up arrives all the same.
type post struct {
	mu   sync.Mutex
	dice *rand.Rand
	lag  time.Duration // mostly
}

const (
	longTrip  = 6 * time.Second
	longTrips = 2 // percent
	copies    = 5 // percent
)

func (p *post) roll(percent int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dice.IntN(100) < percent
}

func (p *post) trip() time.Duration {
	if p.roll(longTrips) {
		return p.some(longTrip)
	}
	return p.some(p.lag)
}

func (p *post) some(most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.dice.Int64N(int64(most) + 1))
}

// reply is what a call answers.
type reply[T any] struct {
	value T
	err   error
}

// send makes a call by post. Without a post it is made at once.
func send[T any](ctx context.Context, p *process, call func(context.Context) (T, error)) (T, error) {
	if p.post == nil {
		return call(ctx)
	}
	there, back := p.post.trip(), p.post.trip()
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	answer := make(chan reply[T], 1)
	p.work.Go(func() {
		wait(context.Background(), there)
		value, err := call(late)
		wait(context.Background(), back)
		answer <- reply[T]{value, err}
	})
	if p.post.roll(copies) {
		again := there + p.post.some(longTrip)
		p.work.Go(func() {
			wait(context.Background(), again)
			limited, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = call(limited) // nobody waits for it
		})
	}
	select {
	case r := <-answer:
		cancel()
		return r.value, r.err
	case <-ctx.Done():
		time.AfterFunc(p.post.trip(), cancel) // until the service knows that nobody waits
		var none T
		return none, fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
	}
}

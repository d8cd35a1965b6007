package virtual

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// delivery delivers the calls of a process to the service, and the answers. Messages are
// delayed, sometimes for long; some arrive twice; and a message arrives even if its
// sender has given up.
type delivery struct {
	mu     sync.Mutex
	random *rand.Rand
	lag    time.Duration // usual maximum
}

const (
	slowDelay     = 6 * time.Second
	slowPercent   = 2 // percent
	repeatPercent = 5 // percent
)

func (p *delivery) chance(percent int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.IntN(100) < percent
}

func (p *delivery) delay() time.Duration {
	if p.chance(slowPercent) {
		return p.some(slowDelay)
	}
	return p.some(p.lag)
}

func (p *delivery) some(most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.random.Int64N(int64(most) + 1))
}

// reply is the answer to a call.
type reply[T any] struct {
	value T
	err   error
}

// send makes a call through the delivery of a process, or directly if it has none.
func send[T any](ctx context.Context, p *process, call func(context.Context) (T, error)) (T, error) {
	if p.delivery == nil {
		return call(ctx)
	}
	there, back := p.delivery.delay(), p.delivery.delay()
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	answer := make(chan reply[T], 1)
	p.work.Go(func() {
		wait(context.Background(), there)
		value, err := call(late)
		wait(context.Background(), back)
		answer <- reply[T]{value, err}
	})
	if p.delivery.chance(repeatPercent) {
		again := there + p.delivery.some(slowDelay)
		p.work.Go(func() {
			wait(context.Background(), again)
			limited, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = call(limited) // a repeated call has no caller
		})
	}
	select {
	case r := <-answer:
		cancel()
		return r.value, r.err
	case <-ctx.Done():
		time.AfterFunc(p.delivery.delay(), cancel) // when the service learns of the cancellation
		var none T
		return none, fmt.Errorf("%w: %w", engine.ErrUncertain, context.Cause(ctx))
	}
}

package redlockadapter

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
)

// listen hears from one node which locks have become free for this process,
// until the backend is closed. What is published while the subscription is down is
// lost; the timers of the waiters make up for it. ready is called once, when the
// node has been asked for the first time.
func (b *Backend) listen(n *node, ready func()) {
	ready = sync.OnceFunc(ready)
	client := redis.NewClient(n.options)
	defer client.Close()
	for b.ctx.Err() == nil {
		sub := client.Subscribe(b.ctx, b.channel+b.process)
		stop := context.AfterFunc(b.ctx, func() { _ = sub.Close() }) // it does not hear the context
		for {
			message, err := sub.Receive(b.ctx)
			ready()
			if err != nil {
				break
			}
			if m, ok := message.(*redis.Message); ok {
				b.queues.freed(n.index, fencing.Resource(m.Payload))
			}
		}
		if stop() {
			_ = sub.Close() // it is made anew
		}
		select {
		case <-time.After(maxBackoff):
		case <-b.ctx.Done():
		}
	}
}

// passOn has a node wake the next waiter of a lock.
func (b *Backend) passOn(node int, lock fencing.Resource) {
	r := newRequest(releaseScript, []string{lockPrefix + string(lock)}, b.process, causeReleased, b.channel, wakeAny, flag(false))
	r.answer = func(int, reply) {}
	b.nodes[node].push(r)
}

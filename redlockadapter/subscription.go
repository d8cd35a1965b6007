package redlockadapter

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// resubscribeAfter is the pause before a failed subscription is made again.
const resubscribeAfter = time.Second

// subscribe receives the wake-ups of one node until the Backend is closed. Wake-ups
// are lost while the subscription is down; waiters have timers too. ready is called
// once, when the node has answered or failed for the first time.
func (b *Backend) subscribe(node int, n *redisconn.Conn, ready func()) {
	ready = sync.OnceFunc(ready)
	client := n.NewClient()
	defer client.Close()
	for b.ctx.Err() == nil {
		sub := client.Subscribe(b.ctx, b.channel+b.process)
		stop := context.AfterFunc(b.ctx, func() { _ = sub.Close() }) // Receive ignores a context that ends
		for {
			message, err := sub.Receive(b.ctx)
			ready()
			if err != nil {
				break
			}
			if m, ok := message.(*redis.Message); ok {
				b.queues.wake(node, fencing.Resource(m.Payload))
			}
		}
		if stop() {
			_ = sub.Close() // it failed already
		}
		_ = engine.Sleep(b.ctx, resubscribeAfter)
	}
}

// passOn has a node wake the next process that waits for a lock.
func (b *Backend) passOn(node int, lock fencing.Resource) {
	r := scripts.Release{Name: b.process, Resources: []fencing.Resource{lock}, Cause: scripts.Released,
		Wake: scripts.WakeAny, Channel: b.channel}
	request := r.Request()
	request.Answer = func(int, redisconn.Reply) {}
	b.nodes[node].Send(request)
}

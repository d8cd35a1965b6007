package redlockadapter

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
)

// listen hears from one node which locks have become free for this process,
// until the backend is closed. What is said while the connection is down is
// lost; the timers of those who wait make up for it. ready is called once, when
// the node has been asked for the first time.
func (b *Backend) listen(index int, n *node, ready func()) {
	ready = sync.OnceFunc(ready)
	for b.ctx.Err() == nil {
		sub := n.client.Subscribe(b.ctx, b.keys.channel+b.process)
		stop := context.AfterFunc(b.ctx, func() { _ = sub.Close() }) // it does not hear the context
		for {
			message, err := sub.Receive(b.ctx)
			ready()
			if err != nil {
				break
			}
			if m, ok := message.(*redis.Message); ok {
				b.queues.freed(index, lockOf(fencing.Resource(m.Payload)))
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

// passOn has a node wake the next one who waits for a lock.
func (b *Backend) passOn(node int, lock string) {
	b.lanes[node].push(&op{script: releaseScript, answer: func(int, answer) {},
		args: newArgs("*1 "+noTomb+" "+wakeAny, lock, b.process+":pass")})
}

// locksOf are the names of locks as the nodes know them.
func locksOf(resources []fencing.Resource) []string {
	locks := make([]string, len(resources))
	for i, r := range resources {
		locks[i] = lockOf(r)
	}
	return locks
}

package redlockadapter

import (
	"bufio"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// A node that answers a large batch one by one is not overdue, however long the
// whole batch takes. A node that stops to answer is.
func TestABatchMayTakeLongerThanTheTimeout(t *testing.T) {
	const batch = 10
	for name, answered := range map[string]int{"all are answered": batch, "the node stops after 6": 6, "nothing is answered": 0} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{}) // outside the bubble: it looks its host up
			synctest.Test(t, func(t *testing.T) {
				n := &node{timeout: 250 * time.Millisecond, clock: engine.SystemClock(), poke: func() {}}
				c := newConnection(n)
				n.connection = c
				ours, server := net.Pipe()
				defer server.Close()
				c.link = &link{client: client, conn: ours, reader: bufio.NewReader(ours)}
				served := make(chan struct{})
				go func() {
					defer close(served)
					c.serve()
				}()
				go func() {
					commands := bufio.NewReader(server)
					for range 3 * batch { // lines
						_, _ = commands.ReadString('\n')
					}
					for range answered {
						<-time.After(200 * time.Millisecond)
						_, _ = server.Write([]byte("+PONG\r\n"))
					}
				}()
				synctest.Wait() // until serve waits for replies: else it sends a part of the batch
				replies := make(chan reply, batch)
				for range batch {
					c.hold(&request{plain: "*1\r\n$4\r\nPING\r\n", answer: func(_ int, r reply) { replies <- r }})
				}
				c.flush()
				for i := range batch {
					require.Equal(t, i < answered, (<-replies).err == nil, "reply %d", i)
				}
				_ = ours.Close()
				<-served
			})
		})
	}
}

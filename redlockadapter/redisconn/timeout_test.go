package redisconn

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

// A server that answers a large batch one by one is not cut off, however long the
// whole batch takes. A server that stops answering is.
func TestTimeoutAppliesToProgressNotToTheWholeBatch(t *testing.T) {
	t.Parallel()
	const batch = 10
	for name, answered := range map[string]int{"all are answered": batch, "the server stops after 6": 6, "nothing is answered": 0} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{}) // outside the bubble: it resolves its host
			synctest.Test(t, func(t *testing.T) {
				c := New(Config{Options: &redis.Options{}, Timeout: 250 * time.Millisecond, MaxAge: time.Hour, Clock: engine.SystemClock(), Failed: func() {}})
				ours, server := net.Pipe()
				defer server.Close()
				c.socket = &socket{client: client, conn: ours, reader: bufio.NewReader(ours), checked: engine.SystemClock().Now()}
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
				synctest.Wait() // until serve reads replies; else it sends a part of the batch
				replies := make(chan Reply, batch)
				for range batch {
					r := NewCommand("PING")
					r.Answer = func(_ int, r Reply) { replies <- r }
					c.Enqueue(r)
				}
				c.Flush()
				for i := range batch {
					require.Equal(t, i < answered, (<-replies).Err == nil, "reply %d", i)
				}
				_ = ours.Close()
				<-served
			})
		})
	}
}

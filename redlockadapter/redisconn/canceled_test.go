package redisconn

import (
	"bufio"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// A canceled request that was not sent is answered and never sent. The requests around
// it keep their replies.
func TestCanceledRequestIsDropped(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{}) // outside the bubble: it resolves its host
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Options: &redis.Options{}, Timeout: time.Second, MaxAge: time.Hour, Clock: engine.SystemClock(), Failed: func() {}})
		ours, server := net.Pipe()
		defer server.Close()
		c.socket = &socket{client: client, conn: ours, reader: bufio.NewReader(ours), checked: engine.SystemClock().Now()}
		served := make(chan struct{})
		go func() {
			defer close(served)
			c.serve()
		}()
		received := make(chan string, 10)
		reply := make(chan struct{})
		go func() {
			commands := bufio.NewReader(server)
			for {
				var line string
				for range 5 { // of *2 $4 ECHO $1 x
					var err error
					if line, err = commands.ReadString('\n'); err != nil {
						return
					}
				}
				received <- line[:1]
				<-reply
				_, _ = server.Write([]byte("+" + line))
			}
		}()
		var canceled atomic.Bool
		answers := map[string]chan Reply{}
		send := func(name string, may *atomic.Bool) {
			r := NewCommand("ECHO", name)
			answer := make(chan Reply, 1)
			answers[name], r.Canceled = answer, may
			r.Answer = func(_ int, r Reply) { answer <- r }
			c.Send(r)
		}
		synctest.Wait() // until serve reads replies
		send("a", &canceled)
		require.Equal(t, "a", <-received)
		send("b", &canceled)
		send("c", nil)
		canceled.Store(true)
		reply <- struct{}{}
		require.NoError(t, (<-answers["a"]).Err, "it was sent before it was canceled")
		require.Equal(t, "c", <-received)
		dropped := <-answers["b"]
		require.ErrorIs(t, dropped.Err, ErrCanceled)
		require.False(t, dropped.MaybeExecuted)
		reply <- struct{}{}
		require.NoError(t, (<-answers["c"]).Err)

		send("d", &canceled)
		require.ErrorIs(t, (<-answers["d"]).Err, ErrCanceled, "on an idle connection, too")
		send("e", nil)
		require.Equal(t, "e", <-received)
		reply <- struct{}{}
		require.NoError(t, (<-answers["e"]).Err)
		_ = ours.Close()
		<-served
	})
}

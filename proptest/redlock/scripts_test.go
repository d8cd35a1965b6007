package redlock

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/quorum"
)

// server is a real node that does what a Column does.
type server struct {
	t      *testing.T
	client *redis.Client
}

func (s *server) run(name string, keys []string, args ...any) []string {
	s.t.Helper()
	text, err := redlockadapter.Script(name)
	require.NoError(s.t, err)
	reply, err := s.client.Eval(context.Background(), text, keys, args...).StringSlice()
	require.NoError(s.t, err)
	return reply
}

func number(n uint8) string { return strconv.Itoa(int(n)) }

// say is the answer of a script in the words of a Column.
func say(reply []string) Reply {
	if len(reply) == 2 {
		if token, err := strconv.Atoi(reply[1]); err == nil {
			return Reply{Kind: quorum.Accepted, Token: uint8(token)}
		}
		if strings.HasPrefix(reply[1], "held") {
			return Reply{Kind: quorum.Held}
		}
	}
	return Reply{Kind: quorum.Refused}
}

// state reads what a Column holds.
func (s *server) state() Column {
	s.t.Helper()
	values, err := s.client.MGet(context.Background(), "max", "lock", "ctr", "floor", "epoch", "join").Result()
	require.NoError(s.t, err)
	get := func(i int) uint8 {
		text, _ := values[i].(string)
		text, _, _ = strings.Cut(text, "\n")
		n, _ := strconv.Atoi(text)
		return uint8(n)
	}
	return Column{Data: values[0] != nil, Max: get(0), Lock: get(1), Ctr: get(2), Floor: get(3), Epoch: get(4), Join: get(5)}
}

// same is a step on the model and on the server.
func (s *server) same(r *rand.Rand, c *Column) (what string, model, real any) {
	attempt, epoch, token, join := r.IntN(3), uint8(1+r.IntN(3)), uint8(1+r.IntN(12)), r.IntN(2)
	name := number(uint8(attempt) + 1)
	switch r.IntN(10) {
	case 0, 1, 2:
		reply := s.run("acquire", []string{"max", "epoch", "floor", "tombs", "lock", "ctr"}, epoch, 100000, "tomb:", name, 100000, "info", 1, "")
		return "acquire", c.acquire(attempt, epoch), say(reply)
	case 3:
		reply := s.run("raise", []string{"max", "epoch", "lock", "ctr"}, epoch, 100000, name, number(token), 1)
		return "raise", c.raise(attempt, token, epoch), say(reply)
	case 4:
		reply := s.run("renew", []string{"max", "tomb", "lock", "ctr"}, 100000, name, number(token), 100000, "info", 1)
		return "renew", c.renew(attempt, token), say(reply).Kind == quorum.Accepted
	case 5:
		reply := s.run("prepare", []string{"max", "epoch"}, epoch)
		top, ok := c.prepare(epoch)
		return "prepare", [2]any{top, ok}, [2]any{say(reply).Token, reply[0] == "ok"}
	case 6:
		reply := s.run("join", []string{"max", "join", "since"}, number(uint8(join)+1))
		return "join", c.join(join), reply[0] == "ok"
	case 7:
		reply := s.run("init", []string{"max", "epoch", "floor", "join", "since", "run"}, number(uint8(join)+1), epoch, number(token), 0, "run")
		return "init", c.init(join, epoch, token), reply[0] == "ok"
	case 8:
		require.NoError(s.t, s.client.Del(context.Background(), "lock").Err())
		c.Lock = 0
	case 9:
		if r.IntN(4) == 0 {
			require.NoError(s.t, s.client.FlushAll(context.Background()).Err())
			c.lose()
		} else if c.Lock == 0 {
			require.NoError(s.t, s.client.Del(context.Background(), "ctr").Err())
			c.Ctr = 0
		}
	}
	return "loss", nil, nil
}

// TestScriptsFollowTheModel takes random steps on both.
func TestScriptsFollowTheModel(t *testing.T) {
	redisServer := testserver.Redis(t)
	s := &server{t: t, client: redis.NewClient(&redis.Options{Addr: redisServer.Addr, MaxRetries: -1})}
	defer s.client.Close()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		require.NoError(t, s.client.FlushAll(context.Background()).Err())
		var c Column
		for step := range 150 {
			what, model, real := s.same(r, &c)
			require.Equal(t, model, real, "seed %d, step %d: %s answers otherwise", seed, step, what)
			require.Equal(t, c, s.state(), "seed %d, step %d: %s does otherwise", seed, step, what)
		}
	}
}

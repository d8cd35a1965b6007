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
	last   int // attempt
}

// run calls a script; a text or a number is a list of one.
func (s *server) run(name string, args ...any) []string {
	s.t.Helper()
	text, err := redlockadapter.Script(name)
	require.NoError(s.t, err)
	text = strings.Replace(text, "local slack = 64", "local slack = "+number(slack), 1)
	cmd := s.client.Eval(context.Background(), text, []string{"node"}, args...)
	if reply, err := cmd.Text(); err == nil {
		return []string{reply}
	}
	if reply, err := cmd.Int(); err == nil {
		return []string{strconv.Itoa(reply)}
	}
	reply, err := cmd.StringSlice()
	require.NoError(s.t, err)
	return reply
}

func number(n uint8) string { return strconv.Itoa(int(n)) }

// say is the answer of a script in the words of a Column.
func say(reply []string) Reply {
	last := reply[len(reply)-1]
	if token, err := strconv.Atoi(last); err == nil {
		return Reply{Kind: quorum.Accepted, Token: uint8(token)}
	}
	if strings.HasPrefix(last, "held") {
		return Reply{Kind: quorum.Held}
	}
	return Reply{Kind: quorum.Refused}
}

// fields reads a hash.
func (s *server) fields(key string) map[string]string {
	s.t.Helper()
	fields, err := s.client.HGetAll(context.Background(), key).Result()
	require.NoError(s.t, err)
	return fields
}

// lock reads the lock, also if it was put aside.
func (s *server) lock() string {
	if lock, ok := s.fields("node")[":a"]; ok {
		return lock
	}
	return s.fields("node:old")[":a"]
}

// state reads what a Column holds.
func (s *server) state() Column {
	get := func(text string) uint8 {
		n, _ := strconv.Atoi(text)
		return uint8(n)
	}
	fields := s.fields("node")
	c := Column{Join: get(fields["join"]), Word: fields["believed"] != ""}
	if state := strings.Fields(fields["state"]); len(state) == 4 {
		c.Epoch, c.Floor, c.Max = get(state[0]), get(state[1]), get(strings.TrimLeft(state[2], "?"))
		c.Data, c.Doubt = !strings.ContainsAny(state[2], "-?"), strings.HasPrefix(state[2], "?")
	}
	lock := strings.Fields(s.lock())
	if len(lock) > 0 {
		c.Ctr = get(lock[0])
	}
	if len(lock) > 2 && lock[1] != "1" { // not expired
		c.Lock = get(lock[2])
	}
	return c
}

// turn puts the locks aside. What was put aside before is forgotten, and that it
// was held too: it would have been renewed.
func (s *server) turn(c *Column) {
	_, inUse := s.fields("node")[":a"]
	_, begun := s.fields("node")["turned"]
	s.run("turn", 0)
	if c.Data && begun && !inUse {
		c.Lock, c.Ctr = 0, 0
	}
}

// restart is a restart with what was on disk. A copy of what was seen then changes
// nothing.
func (s *server) restart(r *rand.Rand, c *Column) {
	if r.IntN(4) > 0 {
		return
	}
	was, is := r.IntN(2), r.IntN(2)
	require.NoError(s.t, s.client.HSet(context.Background(), "node", "run", "a "+strconv.Itoa(was)).Err())
	for range 1 + r.IntN(2) {
		s.run("admit", "b", is)
	}
	if was == 1 && is == 1 {
		c.doubt()
	} else {
		c.distrust()
	}
}

// same is a step on the model and on the server.
func (s *server) same(r *rand.Rand, c *Column) (what string, model, real any) {
	attempt, epoch, token, join := r.IntN(3), uint8(max(1, int(c.Epoch)-1+r.IntN(3))), uint8(1+r.IntN(12)), r.IntN(2)
	if r.IntN(2) == 0 { // what is likely to be accepted
		attempt, epoch, token = s.last, max(1, c.Epoch)+uint8(r.IntN(8)/7), c.Ctr+uint8(r.IntN(3))
	}
	s.last = attempt
	name := number(uint8(attempt)+1) + "\ninfo"
	switch r.IntN(14) {
	case 0, 1, 2:
		args := []any{epoch, 100000, ":a", name}
		if r.IntN(2) == 0 { // the long way
			args = []any{epoch, 100000, "*1 ", ":a", name}
		}
		reply := s.run("acquire", args...)
		return "acquire", c.acquire(attempt, epoch), say(reply)
	case 3:
		reply := s.run("raise", epoch, "1 "+number(token), ":a", name)
		return "raise", c.raise(attempt, token, epoch), say(reply)
	case 4:
		reply := s.run("renew", "1 100000 "+number(token), ":a", name)
		return "renew", c.renew(attempt, token), say(reply).Kind == quorum.Accepted
	case 5:
		believe := r.IntN(2) == 0
		reply := s.run("prepare", epoch, believe)
		top, ok := c.prepare(epoch, believe)
		return "prepare", [2]any{top, ok}, [2]any{say(reply).Token, reply[0] == "ok"}
	case 6:
		reply := s.run("join", number(uint8(join)+1))
		return "join", c.join(join), reply[0] == "ok"
	case 7:
		believed := r.IntN(2) == 0
		reply := s.run("init", number(uint8(join)+1), epoch, number(token), 0, "run", 0, "0", believed)
		return "init", c.init(join, epoch, token, believed), reply[0] == "ok"
	case 8: // the lock expires
		if lock := strings.Fields(s.lock()); len(lock) > 2 {
			past := lock[0] + " 1 " + lock[2] + "\ninfo"
			require.NoError(s.t, s.client.HSet(context.Background(), "node", ":a", past).Err())
		}
		c.Lock = 0
	case 9:
		if r.IntN(4) == 0 {
			require.NoError(s.t, s.client.FlushAll(context.Background()).Err())
			c.lose()
		} else if c.Lock == 0 {
			require.NoError(s.t, s.client.HDel(context.Background(), "node", ":a").Err())
			require.NoError(s.t, s.client.HDel(context.Background(), "node:old", ":a").Err())
			c.Ctr = 0
		}
	case 10:
		args := []any{":a", name}
		if r.IntN(2) == 0 {
			args = []any{"*1 0 next", ":a", name}
		}
		c.release(attempt)
		return "release", []string{"0"}, s.run("release", args...)
	case 11:
		s.turn(c)
	case 12:
		reply := s.run("floor", number(token))
		return "floor", c.raiseFloor(token), reply[0] == "ok"
	case 13:
		s.restart(r, c)
	}
	return "loss", nil, nil
}

// TestScriptsFollowTheModel takes random steps on both.
func TestScriptsFollowTheModel(t *testing.T) {
	redisServer := testserver.Redis(t)
	s := &server{t: t, client: redis.NewClient(&redis.Options{Addr: redisServer.Addr, MaxRetries: -1})}
	defer s.client.Close()
	for seed := range uint64(100) {
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

// TestDoubtedNodePreparesOnlyIfBelieved: a node that was restarted must not be
// among those who tell others how far tokens have come, unless there is nobody else.
func TestDoubtedNodePreparesOnlyIfBelieved(t *testing.T) {
	redisServer := testserver.Redis(t)
	s := &server{t: t, client: redis.NewClient(&redis.Options{Addr: redisServer.Addr, MaxRetries: -1})}
	defer s.client.Close()
	require.NoError(t, s.client.HSet(context.Background(), "node", "state", "3 0 7 0", "run", "a 1").Err())
	require.Equal(t, []string{"doubted"}, s.run("admit", "b", "1"))
	require.Equal(t, []string{"empty"}, s.run("prepare", 4, "0"))
	require.Equal(t, "3 0 ?7 0", s.fields("node")["state"])
	require.Equal(t, []string{"ok", "7"}, s.run("prepare", 4, "1"))
	require.Equal(t, "4 0 ?7 0", s.fields("node")["state"], "and it does not vote yet")
	require.Equal(t, []string{"empty"}, s.run("acquire", 4, 1000, ":a", "1\ninfo"))
	require.Equal(t, []string{"ok"}, s.run("join", "n"))
	require.Equal(t, []string{"ok"}, s.run("init", "n", 5, "3", 1000, "b"))
	require.Equal(t, "5 7 7 0", s.fields("node")["state"], "what it knows itself may be more")
}

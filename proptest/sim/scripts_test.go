package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/redlockadapter"
)

// realNode is a Redis server that runs the real scripts, at a time that the test
// chooses: where a script asks for the time it is given that instead. Tombstones,
// which the server lets expire, are deleted by the test.
type realNode struct {
	t      *testing.T
	client *redis.Client
	now    time.Duration
	tombs  map[string]time.Duration
}

var askTime = regexp.MustCompile(`(redis\.)?call\('TIME'\)`)

func (s *realNode) run(name string, args ...any) []string {
	s.t.Helper()
	text, err := redlockadapter.Script(name)
	require.NoError(s.t, err)
	text = askTime.ReplaceAllString(text, fmt.Sprintf("{'%d', '%d'}", s.now/time.Second, s.now%time.Second/time.Microsecond))
	for i, a := range args {
		if d, ok := a.(time.Duration); ok {
			args[i] = d.Milliseconds()
		}
	}
	answer, err := s.client.Eval(context.Background(), text, []string{"node"}, args...).Result()
	require.NoError(s.t, err)
	return strings.Fields(strings.Trim(fmt.Sprint(answer), "[]")) // a text, a number, or a list
}

// said is the answer of a script in the words of a redisNode.
func said(words []string) reply {
	if token, err := strconv.ParseUint(words[0], 10, 64); err == nil {
		return reply{word: "ok", token: fencing.Token(token)}
	}
	r := reply{word: words[0]}
	if len(words) > 1 {
		n, _ := strconv.ParseUint(words[1], 10, 64)
		switch r.word {
		case "ok":
			r.token = fencing.Token(n)
		case "held", "wait":
			r.left = time.Duration(n) * time.Millisecond
		}
	}
	if r.word == "held" {
		r.holder = words[2]
	}
	return r
}

// values reads the locks in a hash.
func (s *realNode) values(key string) (locks map[resource]value, rest map[string]string) {
	s.t.Helper()
	all, err := s.client.HGetAll(context.Background(), key).Result()
	require.NoError(s.t, err)
	locks, rest = map[resource]value{}, map[string]string{}
	for field, text := range all {
		name, isLock := strings.CutPrefix(field, ":")
		if !isLock {
			rest[field] = text
			continue
		}
		words := strings.Fields(text)
		v := value{counter: fencing.Token(number(words[0]))}
		if len(words) > 1 {
			v.until, v.name = time.Duration(number(words[1]))*time.Millisecond, words[2]
		}
		locks[resource(name)] = v
	}
	return locks, rest
}

func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// state reads what a redisNode holds.
func (s *realNode) state() redisNode {
	locks, rest := s.values("node")
	old, _ := s.values("node:old")
	n := redisNode{locks: locks, old: old, join: rest["join"], since: time.Duration(number(rest["since"])) * time.Millisecond,
		turned: time.Duration(number(rest["turned"])) * time.Millisecond, tombs: s.tombs, word: rest["believed"] != ""}
	if words := strings.Fields(rest["state"]); len(words) == 4 {
		var top string
		top, n.doubt = strings.CutPrefix(words[2], "?")
		n.data, n.epoch, n.floor, n.max = !n.doubt, number(words[0]), fencing.Token(number(words[1])), fencing.Token(number(top))
		n.buried = time.Duration(number(words[3])) * time.Millisecond
	}
	return n
}

// both takes one random step on the model and on the server.
func (s *realNode) both(r *rand.Rand, n *redisNode) (what string, model, real any) {
	name := resource(pick(r, "a", "b"))
	field := ":" + string(name)
	who, epoch, ttl, nonce := strconv.Itoa(r.IntN(3)), 1+r.Uint64N(3), time.Duration(1+r.IntN(3))*time.Second, strconv.Itoa(r.IntN(2))
	token := fencing.Token(1 + r.IntN(80))
	if v, ok := n.lock(name); ok && r.IntN(2) == 0 {
		token = v.counter + fencing.Token(r.IntN(2)) // near what is there
	}
	body := who + "\ninfo"
	switch r.IntN(14) {
	case 0, 1, 2, 3:
		got := said(s.run("acquire", epoch, ttl, field, body))
		return "acquire", n.acquire(s.now, name, who, ttl, epoch), got
	case 4:
		got := said(s.run("raise", epoch, "1 "+token.String(), field, body))
		return "raise", n.raise(s.now, name, who, token, epoch), got
	case 5:
		got := said(s.run("renew", fmt.Sprintf("1 %d %d", ttl.Milliseconds(), token), field, body))
		return "renew", n.renew(s.now, name, who, token, ttl), got
	case 6:
		s.run("release", field, body)
		n.release(s.now, name, who, 0)
	case 7:
		s.run("release", fmt.Sprintf("*1 %d next", ttl.Milliseconds()), field, body)
		n.release(s.now, name, who, ttl)
	case 8:
		believe := r.IntN(2) == 0
		got := said(s.run("prepare", epoch, believe))
		return "prepare", n.prepare(epoch, believe), got
	case 9:
		got, want := said(s.run("join", nonce)), n.beginJoin(s.now, nonce)
		want.left = 0
		return "join", want, got
	case 10:
		believed := r.IntN(2) == 0
		got := said(s.run("init", nonce, epoch, token.String(), 2*time.Second, "run", 0, "0", believed))
		return "init", n.init(s.now, nonce, epoch, token, 2*time.Second, believed), got
	case 11:
		got := said(s.run("turn", 4*time.Second))
		return "turn", n.turn(s.now, 4*time.Second), got
	case 12:
		if r.IntN(6) == 0 {
			require.NoError(s.t, s.client.FlushAll(context.Background()).Err())
			n.lose()
			s.tombs = n.tombs
		}
	case 13:
		if r.IntN(6) == 0 {
			require.NoError(s.t, s.client.HSet(context.Background(), "node", "run", "a 1").Err())
			s.run("admit", "b", "1")
			n.restart()
		}
	}
	return "a step without an answer", nil, nil
}

// pass moves the time, now and then back.
func (s *realNode) pass(r *rand.Rand) {
	s.now += time.Duration(r.IntN(1500)) * time.Millisecond
	if r.IntN(30) == 0 {
		s.now -= time.Duration(r.IntN(5000)) * time.Millisecond
	}
	for who, until := range s.tombs {
		if until <= s.now {
			delete(s.tombs, who)
			require.NoError(s.t, s.client.Del(context.Background(), "node:tomb:"+who).Err())
		}
	}
}

// TestNodesFollowTheScripts takes random steps on a simulated node and on a real
// server that runs the real scripts.
func TestNodesFollowTheScripts(t *testing.T) {
	server := testserver.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
	defer client.Close()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		require.NoError(t, client.FlushAll(context.Background()).Err())
		n := &redisNode{}
		n.lose()
		s := &realNode{t: t, client: client, now: time.Hour, tombs: n.tombs}
		for step := range 150 {
			what, model, real := s.both(r, n)
			require.Equal(t, model, real, "seed %d, step %d: %s answers otherwise", seed, step, what)
			require.Equal(t, *n, s.state(), "seed %d, step %d: %s does otherwise", seed, step, what)
			s.pass(r)
		}
	}
}

package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// claimant is someone who wants the lock: alone (""), as a reader ("s"), or with
// a slot of two ("p1", "p2").
type claimant struct {
	name, kind string
}

var claimants = []claimant{{"1", ""}, {"2", ""}, {"3", "s"}, {"4", "s"}, {"5", "p1"}, {"6", "p2"}, {"7", "p1"}}

func (c claimant) body() string { return c.name + "\ninfo" }

// asks is the first word of an acquire.
func (c claimant) asks() string {
	if strings.HasPrefix(c.kind, "p") {
		return "*1  " + c.kind + "/2"
	}
	return strings.TrimRight("*1  "+c.kind, " ") + strings.Repeat(" ", 1-min(1, len(c.kind)))
}

// sharing is one lock with readers and permits, said as plainly as can be.
type sharing struct {
	counter int
	x       string         // the name of who has the lock alone, perhaps only for its token
	in      map[string]int // the tokens of those who are in
}

func kindOf(name string) string {
	n, _ := strconv.Atoi(name)
	return claimants[n-1].kind
}

func alike(a, b string) bool { return a != "" && b != "" && a[0] == b[0] }

// barred reports whether someone who is in keeps c out: one of another kind, or
// one with its slot.
func (l *sharing) barred(c claimant) (byKind, bySlot bool) {
	for name := range l.in {
		byKind = byKind || !alike(kindOf(name), c.kind)
		bySlot = bySlot || c.kind != "s" && kindOf(name) == c.kind
	}
	return byKind, bySlot
}

func (l *sharing) acquire(c claimant) string {
	byKind, bySlot := l.barred(c)
	token, isIn := l.in[c.name]
	switch {
	case isIn:
		return strconv.Itoa(token)
	case l.x == c.name:
		return strconv.Itoa(l.counter)
	case byKind || bySlot && len(l.in) == 2 || l.x != "" && (c.kind == "" || kindOf(l.x) == ""):
		return "held"
	case l.x != "":
		return "busy"
	case bySlot:
		return map[string]string{"p1": "slot 2", "p2": "slot 1"}[c.kind]
	}
	l.counter++
	l.x = c.name
	return strconv.Itoa(l.counter)
}

// stay is what a reader or a permit does once it has its token.
func (l *sharing) stay(c claimant, token int) {
	if l.x == c.name {
		l.x = ""
		l.in[c.name] = token
	}
}

func (l *sharing) release(c claimant) {
	delete(l.in, c.name)
	if l.x == c.name {
		l.x = ""
	}
}

func (l *sharing) renew(c claimant, token int) string {
	_, isIn := l.in[c.name]
	byKind, bySlot := l.barred(c)
	if l.x != c.name && !isIn && (l.x != "" || l.counter > token || byKind || bySlot) {
		return "taken"
	}
	if l.x == "" || l.x == c.name {
		l.counter = max(l.counter, token)
	}
	if c.kind == "" {
		l.x = c.name
		return strconv.Itoa(token)
	}
	l.in[c.name] = token
	if l.x == c.name {
		l.x = ""
	}
	return strconv.Itoa(token)
}

// sharing reads the lock of a real node.
func (s *server) sharing() *sharing {
	l := &sharing{in: map[string]int{}}
	words := strings.Fields(strings.TrimLeft(s.fields("node")[":a"], "!&~"))
	if len(words) > 0 {
		l.counter, _ = strconv.Atoi(words[0])
	}
	if len(words) > 2 && words[1] != "1" {
		l.x = words[2]
	}
	for _, value := range s.fields("node:in:a") {
		if words := strings.Fields(value); words[0] != "1" {
			l.in[words[2]], _ = strconv.Atoi(words[1])
		}
	}
	return l
}

// expire sets the deadline of a value to the past.
func (s *server) expire(key, field string) {
	flags := ""
	value := s.fields(key)[field]
	words := strings.Fields(strings.TrimLeft(value, "!&~"))
	if flags = value[:len(value)-len(strings.TrimLeft(value, "!&~"))]; len(words) < 3 {
		return
	}
	words[map[string]int{"node": 1, "node:in:a": 0}[key]] = "1"
	past := flags + strings.Join(words[:3], " ") + "\ninfo"
	require.NoError(s.t, s.client.HSet(context.Background(), key, field, past).Err())
}

// share is one step on the model and on the server.
func (s *server) share(r *rand.Rand, l *sharing) (what string, model, real any) {
	c := claimants[r.IntN(len(claimants))]
	kind := strings.TrimRight(" "+c.kind, " ")
	token := l.counter + r.IntN(3) - 1
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		reply := s.run("acquire", 1, 100000, c.asks(), ":a", c.body())[0]
		if strings.HasPrefix(reply, "held") {
			reply = "held"
		}
		return "acquire", l.acquire(c), reply
	case 4, 5:
		if c.kind != "" {
			s.run("release", fmt.Sprintf("*1 0 next%s 100000 %d", kind, l.counter), ":a", c.body())
			l.stay(c, l.counter)
		}
	case 6:
		s.run("release", "*1 0 next"+kind, ":a", c.body())
		l.release(c)
	case 7, 8:
		if had, ok := l.in[c.name]; ok {
			token = had
		}
		reply := s.run("renew", fmt.Sprintf("1 100000 %d%s", max(1, token), kind), ":a", c.body())
		return "renew", l.renew(c, max(1, token)), reply[0]
	case 9:
		s.expire("node", ":a")
		l.x = ""
		for field := range s.fields("node:in:a") {
			if value := s.fields("node:in:a")[field]; r.IntN(3) == 0 {
				s.expire("node:in:a", field)
				delete(l.in, strings.Fields(value)[2])
			}
		}
	}
	return "end", nil, nil
}

// TestKindsFollowTheModel takes random steps on both. Tokens need no model of
// their own: for them a reader that passes the lock on is one whose lock ends,
// which the search has at any moment.
func TestKindsFollowTheModel(t *testing.T) {
	redisServer := testserver.Redis(t)
	s := &server{t: t, client: redis.NewClient(&redis.Options{Addr: redisServer.Addr, MaxRetries: -1})}
	defer s.client.Close()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		require.NoError(t, s.client.FlushAll(context.Background()).Err())
		require.NoError(t, s.client.HSet(context.Background(), "node", "state", "1 0 1 0", ":a", "1").Err())
		l := &sharing{counter: 1, in: map[string]int{}}
		for step := range 150 {
			what, model, real := s.share(r, l)
			require.Equal(t, model, real, "seed %d, step %d: %s answers otherwise", seed, step, what)
			require.Equal(t, l, s.sharing(), "seed %d, step %d: %s does otherwise", seed, step, what)
		}
	}
}

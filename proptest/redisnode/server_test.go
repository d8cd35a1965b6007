package redisnode

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/recovery"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// server runs the scripts at times that the test sets.
type server struct {
	t      *testing.T
	client *redis.Client
	texts  map[string]string
	life   string
}

const prefix = "{ns}:"

var expiry = regexp.MustCompile(`redis.call\('PEXPIRE', (\w+), \d+\)`)

func newServer(t *testing.T, addr string) *server {
	t.Helper()
	s := &server{t: t, client: redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}), texts: map[string]string{}}
	t.Cleanup(func() { _ = s.client.Close() })
	for _, name := range []string{"acquire", "raise", "renew", "release", "inspect", "list", "report", "join", "init",
		"reserve", "advance", "sweep", "leave"} {
		text, err := scripts.Text(name)
		require.NoError(t, err)
		// Time is what the test says: expireQueues removes what has expired, and the server nothing.
		s.texts[name] = expiry.ReplaceAllString(text, "redis.call('PEXPIRE', $1, 3600000)")
	}
	return s
}

func (s *server) key(parts ...string) string { return prefix + s.life + ":" + strings.Join(parts, ":") }

func (s *server) keys(resources []fencing.Resource) (keys []string) {
	for _, r := range resources {
		keys = append(keys, s.key("lock", string(r)))
	}
	return keys
}

// run executes a script at a time. A scalar reply becomes a list of one.
func (s *server) run(now int64, name string, keys []string, args ...any) []string {
	s.t.Helper()
	text := strings.ReplaceAll(s.texts[name], "redis.call('TIME')", fmt.Sprintf("{'%d', '%d'}", now/1000,
		now%1000*1000+999))
	reply, err := s.client.Eval(context.Background(), text, keys, args...).Result()
	require.NoError(s.t, err, name)
	list, ok := reply.([]any)
	if !ok {
		list = []any{reply}
	}
	var texts []string
	for _, part := range list {
		texts = append(texts, fmt.Sprint(part))
	}
	return texts
}

// reply parses the reply of a script.
func (s *server) reply(texts []string) Reply {
	s.t.Helper()
	switch first := Reason(texts[0]); first {
	case "ok":
		return Reply{}
	case OtherFleet:
		return Reply{Reason: first, Fleet: texts[1]}
	case OldVersion:
		return Reply{Reason: first, Version: number(s.t, texts[1])}
	case Held:
		return Reply{Reason: first, Left: int64(number(s.t, texts[1])), Nonce: texts[2]}
	case Quarantined:
		return Reply{Reason: first, Left: int64(number(s.t, texts[1]))}
	case Empty, Ended, AtCeiling, Lost, Taken, OtherJoin:
		return Reply{Reason: first}
	default:
		return Reply{Token: fencing.Token(number(s.t, texts[0]))}
	}
}

// number parses digits; "" is 0, and 1e+15 is an error.
func number(t *testing.T, text string) uint64 {
	t.Helper()
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return n
}

// state reads the state of the node.
func (s *server) state() State {
	s.t.Helper()
	fields, err := s.client.HGetAll(context.Background(), s.key("node")).Result()
	require.NoError(s.t, err)
	token := func(name string) fencing.Token { return fencing.Token(number(s.t, fields[name])) }
	version, voter := fields["version"]
	return State{Voter: voter, Version: number(s.t, version), Fleet: fields["fleet"], Member: fields["member"],
		Max: token("max"), Floor: token("floor"), Ceiling: token("ceiling"),
		Initialised: fields["initialised"], Successor: fields["successor"], Join: fields["join"],
		Joined: int64(number(s.t, fields["joined"])), Since: int64(number(s.t, fields["since"]))}
}

// lives returns the lives with a state, sorted.
func (s *server) lives() (lives []string) {
	s.t.Helper()
	keys, err := s.client.Keys(context.Background(), prefix+"*:node").Result()
	require.NoError(s.t, err)
	for _, key := range keys {
		lives = append(lives, strings.TrimSuffix(strings.TrimPrefix(key, prefix), ":node"))
	}
	slices.Sort(lives)
	return lives
}

// lives returns the lives with a state, sorted.
func (n *Node) lives() (lives []string) {
	for life, d := range n.data {
		if d.state != (State{}) {
			lives = append(lives, life)
		}
	}
	slices.Sort(lives)
	return lives
}

// record reads the record of a lock.
func (s *server) record(resource fencing.Resource) Record {
	s.t.Helper()
	fields, err := s.client.HGetAll(context.Background(), s.key("lock", string(resource))).Result()
	require.NoError(s.t, err)
	queue, err := s.client.ZRangeWithScores(context.Background(), s.key("waiting", string(resource)), 0, -1).Result()
	require.NoError(s.t, err)
	r := Record{Nonce: fields["nonce"], Until: int64(number(s.t, fields["until"])),
		Token:   fencing.Token(number(s.t, fields["token"])),
		Counter: fencing.Token(number(s.t, fields["counter"])), Details: fields["details"],
		Renewed: fencing.Token(number(s.t, fields["renewed"])), Released: fields["released"],
		Ended: fencing.Token(number(s.t, fields["ended"])), Broken: fields["broken"],
		Waiting: fields["waiting"] == "1"}
	for _, w := range queue {
		r.Waiters = append(r.Waiters, Waiter{Ticket: int64(w.Score), Name: w.Member.(string)})
	}
	return r
}

// report parses the reply of report.lua.
func (s *server) report(now int64) (report recovery.Report, join string, waited, joined int64) {
	s.t.Helper()
	f := s.run(now, "report", []string{s.key("node"), prefix + "life"}, prefix)
	require.Equal(s.t, strconv.FormatInt(now, 10), f[0])
	state := func(f []string) *recovery.State {
		if f[0] == "" {
			return nil
		}
		return &recovery.State{Version: number(s.t, f[1]), Fleet: f[2], Member: f[3], Max: fencing.Token(number(s.t, f[4])),
			Floor: fencing.Token(number(s.t, f[5])), Ceiling: fencing.Token(number(s.t, f[6])), Join: f[7], Successor: f[8]}
	}
	report = recovery.Report{Reached: true, Server: f[1], Live: state(f[2:])}
	if len(f) > 14 {
		report.FormerServer, report.Former = f[14], state(f[15:])
	}
	waited, _ = strconv.ParseInt(f[12], 10, 64)
	joined, _ = strconv.ParseInt(f[13], 10, 64)
	return report, f[11], waited, joined
}

// list reads all pages of list.lua.
func (s *server) list(now int64, version uint64) (resources []fencing.Resource, reason Reason) {
	s.t.Helper()
	for cursor := "0"; ; {
		page := s.run(now, "list", []string{s.key("node")}, cursor, "", 100, version)
		if reason := Reason(page[0]); reason == Empty || reason == OldVersion {
			return nil, reason
		}
		for _, r := range page[1:] {
			resources = append(resources, fencing.Resource(r))
		}
		if cursor = page[0]; cursor == "0" {
			slices.Sort(resources)
			return resources, Accepted
		}
	}
}

// expireQueues expires queues like Redis, whose clock is not used here.
func (s *server) expireQueues(now int64, n *Node, resources []fencing.Resource) {
	s.t.Helper()
	for _, r := range resources {
		if record := n.now().locks[r]; record != nil && record.WaitersUntil <= now {
			record.Waiters, record.Seen = nil, nil // permanently, even if the clock is set back
			require.NoError(s.t, s.client.Del(context.Background(), s.key("waiting", string(r)), s.key("seen", string(r))).Err())
		}
	}
}

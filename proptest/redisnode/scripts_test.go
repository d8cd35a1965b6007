package redisnode

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
)

var resources = []fencing.Resource{"a", "b:lock:c"}

// both executes random steps on the model and on a server.
type both struct {
	*server
	*rand.Rand
	node  *Node
	now   int64
	count int           // of lives
	base  fencing.Token // tokens are slightly above it
	last  string        // nonce
}

func (b *both) token() fencing.Token {
	return min(b.base+fencing.Token(b.IntN(30)), fencing.MaxToken)
}

func (b *both) version() uint64 {
	return max(1, b.node.State().Version+uint64(b.IntN(4))) - uint64(b.IntN(2))
}
func (b *both) fleet() string { return []string{"f", "f", "f", "f", "g"}[b.IntN(5)] }

func (b *both) some() []fencing.Resource {
	return [][]fencing.Resource{resources[:1], resources[1:], resources, {resources[1], resources[0]}}[b.IntN(4)]
}

// call draws a call that is mostly accepted.
func (b *both) call() Call {
	if b.last == "" || b.IntN(2) == 0 {
		b.last = fmt.Sprintf("s%d.n.%d", b.IntN(3), b.IntN(2))
	}
	c := Call{Version: b.version(), Fleet: b.fleet(), Nonce: b.last, TTL: 1 + b.Int64N(20_000), Token: b.token(),
		Details: fmt.Sprintf("d%d", b.IntN(2))}
	switch b.IntN(5) {
	case 0:
		c.Token = max(b.node.State().Floor, 1) // the largest invalid token
	case 1, 2:
		c.Token = min(b.node.Record(resources[0]).Token+fencing.Token(b.IntN(3)), fencing.MaxToken)
	}
	if b.IntN(3) == 0 {
		c.Waiter = Waiter{Ticket: b.Int64N(1000), Name: b.waiter()}
	}
	return c
}

func (b *both) waiter() string { return fmt.Sprintf("p%d h%d", b.IntN(3), b.IntN(2)) }

// step executes one step on both, and returns both answers.
func (b *both) step() (what string, model, real any) {
	if b.now += b.Int64N(5_000); b.IntN(20) == 0 {
		b.now += 100_000
	}
	b.expireQueues(b.now, b.node, resources)
	state := b.key("node")
	switch k := b.IntN(20); {
	case k < 6:
		c, some := b.call(), b.some()
		if c.Token == fencing.None || b.IntN(3) > 0 {
			c.Token = fencing.None
		}
		return "acquire", b.node.Acquire(b.now, some, c), b.acquire(some, &c)
	case k < 8:
		c, some := b.call(), b.some()
		reply := b.reply(b.run(b.now, "raise", append([]string{state}, b.keys(some)...), c.Version, c.Fleet, c.Nonce,
			uint64(c.Token)))
		return "raise", b.node.Raise(b.now, some, c), reply
	case k < 10:
		c, some := b.call(), b.some()
		reply := b.reply(b.run(b.now, "renew", append([]string{state}, b.keys(some)...), c.Version, c.Fleet, c.Nonce, c.TTL,
			c.Details, uint64(c.Token)))
		return "renew", b.node.Renew(b.now, some, c), reply
	case k < 12:
		return b.release()
	case k < 13:
		v, f, floor := b.version(), b.fleet(), b.token()
		ceiling := min(floor+fencing.Token(b.IntN(20)), fencing.MaxToken)
		successor := []string{"", "h"}[b.IntN(2)]
		model := b.node.Advance(v, f, floor, ceiling, successor)
		return "advance", word(model), b.run(b.now, "advance", []string{state}, v, f, uint64(floor), uint64(ceiling),
			successor)[0]
	case k < 14:
		f, floor, version, text := b.fleet(), b.token(), uint64(b.IntN(3)), ""
		if version != 0 {
			text = strconv.FormatUint(version, 10)
		}
		model := b.node.Reserve(f, floor, version)
		return "reserve", word(model), b.run(b.now, "reserve", []string{state, prefix + "life"}, f, uint64(floor), text)[0]
	case k < 18:
		return b.recover(k - 1)
	}
	return b.lose()
}

// acquire calls the script. Arguments that are not needed are missing.
func (b *both) acquire(some []fencing.Resource, c *Call) Reply {
	b.t.Helper()
	args := []any{c.Version, c.Fleet, c.Nonce, c.TTL, c.Details}
	granted := ""
	if c.Token != fencing.None {
		granted = c.Token.String()
	}
	if c.Waiter.Name != "" {
		args = append(args, granted, c.Waiter.Name, c.Waiter.Ticket)
	} else if granted != "" {
		args = append(args, granted)
	}
	return b.reply(b.run(b.now, "acquire", append([]string{b.key("node")}, b.keys(some)...), args...))
}

// word returns a reason as the keeper's scripts return it.
func word(r Reason) string {
	if r == Accepted {
		return "ok"
	}
	return string(r)
}

func (b *both) release() (string, any, any) {
	c, some := b.call(), b.some()
	wake, refuse := []Wake{WakeNext, WakeAny, WakeNone}[b.IntN(3)], b.IntN(2)
	cause := []string{Released, Broken, Withdrawn}[b.IntN(3)]
	if b.IntN(2) == 0 {
		c.Token = fencing.None
	}
	args := []any{c.Nonce, cause, "wake:", string(wake), refuse, uint64(c.Token)}
	if cause == Broken {
		args = append(args, c.Version, c.Fleet)
	}
	reply := b.reply(b.run(b.now, "release", b.keys(some), args...)) // 0, since there are no subscribers
	_, model := b.node.Release(b.now, some, End{Nonce: c.Nonce, Token: c.Token, Cause: cause, Wake: wake,
		Refuse: refuse == 1, Version: c.Version, Fleet: c.Fleet})
	return cause, model, reply
}

// recover is join or init. Most inits have the current join nonce.
func (b *both) recover(k int) (string, any, any) {
	join, v, f, state := fmt.Sprintf("j%d", b.IntN(3)), b.version(), b.fleet(), b.key("node")
	if k < 15 {
		j, again := Join{Nonce: join, Version: v, Fleet: f, Keep: b.Int64N(20_000), Gap: b.Int64N(20_000)}, b.IntN(3)
		j.Again = again == 1
		reason, waited := b.node.Join(b.now, j)
		real := b.run(b.now, "join", []string{state}, join, v, f, j.Keep, again, j.Gap)
		if reason == Accepted {
			require.Equal(b.t, fmt.Sprint(waited), real[1])
		}
		return "join", word(reason), real[0]
	}
	if present := b.node.State().Join; present != "" && b.IntN(4) > 0 {
		join = present
	}
	if b.IntN(5) == 0 {
		b.now -= min(b.now, b.Int64N(100_000)) // the clock is set back
	}
	r := Range{Join: join, Version: v, Fleet: f, Member: "m", Floor: b.token(), Quarantine: b.Int64N(10_000),
		Successor: []string{"", "h"}[b.IntN(2)]}
	r.Ceiling = min(r.Floor+fencing.Token(b.IntN(20)), fencing.MaxToken)
	reply := b.reply(b.run(b.now, "init", []string{state, prefix + "life"}, r.Join, r.Version, r.Fleet, r.Member,
		uint64(r.Floor), uint64(r.Ceiling), r.Quarantine, r.Successor))
	return "init", b.node.Init(b.now, r), reply
}

// readVersion is the version of a reader: mostly that of the node. It draws nothing, because a read is not a step.
func (b *both) readVersion() uint64 {
	version := b.node.State().Version
	if version > 0 && b.now%3 == 0 {
		version--
	}
	return version
}

// inspect compares the answers of inspect, and returns the number of waiters in them.
func (b *both) inspect(resource fencing.Resource, about string) int {
	b.t.Helper()
	version := b.readVersion()
	r, left, reason := b.node.Inspect(b.now, resource, version)
	model := []string{string(reason)}
	switch reason {
	case OldVersion:
		model = append(model, strconv.FormatUint(b.node.State().Version, 10))
	case Accepted:
		model = []string{r.Nonce, strconv.FormatInt(left, 10), r.Token.String(), r.Renewed.String(), r.Ended.String(),
			r.Details, r.Released, r.Cause()}
		for _, w := range r.Waiters {
			model = append(model, w.Name, strconv.FormatInt(w.Ticket, 10))
		}
	}
	real := b.run(b.now, "inspect", []string{b.key("node"), b.key("lock", string(resource))}, version)
	require.Equal(b.t, model, real, "%s, inspect %s", about, resource)
	return len(r.Waiters)
}

// lose is a sweep, or a restart with or without data.
func (b *both) lose() (string, any, any) {
	switch k := b.IntN(8); {
	case k < 4:
		idle := b.Int64N(40_000)
		for cursor := "0"; ; {
			if cursor = b.run(b.now, "sweep", []string{b.key("node"), prefix + "life"}, cursor, prefix, idle)[0]; cursor == "0" {
				break
			}
		}
		b.node.Sweep(b.now, idle)
		return "sweep", nil, nil
	case k == 4:
		b.begin()
		b.node.Restart(b.life)
	case k == 5:
		b.begin()
		require.NoError(b.t, b.client.FlushAll(context.Background()).Err())
		b.node = New(b.life)
	}
	return "restart", nil, nil
}

// begin begins a new life.
func (b *both) begin() {
	b.count++
	b.life = fmt.Sprintf("%016x", b.count)
}

// same compares all data, and returns the number of waiters that inspect returned.
func (b *both) same(about string) (waiters int) {
	b.t.Helper()
	require.Equal(b.t, b.node.State(), b.state(), about)
	require.Equal(b.t, b.node.lives(), b.lives(), about)
	for _, r := range resources {
		model := b.node.Record(r)
		if model.Waiters = model.queue(b.now); len(model.Waiters) == 0 {
			model.Waiters = nil
		}
		model.WaitersUntil, model.Seen = 0, nil
		require.Equal(b.t, model, b.record(r), "%s, lock %s", about, r)
		waiters += b.inspect(r, about)
	}
	report, join, waited, joined := b.node.Report(b.now)
	gotReport, gotJoin, gotWaited, gotJoined := b.report(b.now)
	require.Equal(b.t, report, gotReport, about)
	require.Equal(b.t, join, gotJoin, about)
	if join != "" {
		require.Equal(b.t, []int64{waited, joined}, []int64{gotWaited, gotJoined}, about)
	}
	version := b.readVersion()
	list, reason := b.node.List(b.now, "", version)
	gotList, gotReason := b.list(b.now, version)
	require.Equal(b.t, reason, gotReason, about)
	if reason == Accepted {
		require.Equal(b.t, list, gotList, about)
	}
	return waiters
}

// outcomes are the outcomes that the steps must reach.
var outcomes = []string{
	"acquire ok", "acquire empty", "acquire fleet", "acquire version", "acquire ended", "acquire held", "acquire ceiling",
	"raise ok", "raise empty", "raise fleet", "raise version", "raise ceiling", "raise lost",
	"renew ok", "renew empty", "renew fleet", "renew version", "renew ended", "renew taken",
	"released ok", "broken ok", "broken empty", "broken fleet", "broken version",
	"advance ok", "advance empty", "advance fleet", "reserve ok", "reserve empty", "reserve fleet", "join ok",
	"join state", "join version", "join joining",
	"init ok", "init join", "init wait", "inspect waiters",
}

func outcome(what string, model any) string {
	if reply, ok := model.(Reply); ok {
		model = word(reply.Reason)
	}
	return fmt.Sprint(what, " ", model)
}

// TestScriptsFollowTheModel executes the same random steps on the model and on the
// scripts, also with tokens near the maximum.
func TestScriptsFollowTheModel(t *testing.T) {
	for name, engine := range map[string]struct {
		addr  func(*testing.T) string
		seeds uint64
	}{
		"redis-server": {func(t *testing.T) string { return testserver.Redis(t).Addr }, 40},
		"miniredis":    {func(t *testing.T) string { return miniredis.RunT(t).Addr() }, 18},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, seen := newServer(t, engine.addr(t)), map[string]int{}
			for seed := range engine.seeds {
				require.NoError(t, s.client.FlushAll(context.Background()).Err())
				b := &both{server: s, Rand: rand.New(rand.NewPCG(seed, 0)), now: 1_700_000_000_000}
				b.base = []fencing.Token{0, 1 << 32, fencing.MaxToken - 40}[seed%3]
				b.begin()
				b.node = New(b.life)
				for step := range 120 {
					what, model, real := b.step()
					about := fmt.Sprintf("seed %d, step %d: %s", seed, step, what)
					require.Equal(t, model, real, about)
					seen["inspect waiters"] += b.same(about)
					seen[outcome(what, model)]++
				}
			}
			for _, wanted := range outcomes {
				require.Positive(t, seen[wanted], "%s never happened: %v", wanted, seen)
			}
		})
	}
}

// queueStep executes a step of waiters that ask for a lock, leave, or are woken, on both, and returns both answers.
func (b *both) queueStep() (model, real any) {
	b.now += b.Int64N(1_200)
	b.expireQueues(b.now, b.node, resources)
	some, waiter := resources[:1+b.IntN(2)], Waiter{Ticket: b.Int64N(9), Name: b.waiter()}
	c := Call{Version: 1, Fleet: "f", Nonce: "other", TTL: 1, Waiter: waiter}
	switch b.IntN(6) {
	case 0:
		queues := []string{b.key("waiting", string(some[0])), b.key("waiting", string(some[len(some)-1]))}[:len(some)]
		return fmt.Sprint(b.node.Leave(b.now, some, c.Waiter.Name)), b.run(b.now, "leave", queues, c.Waiter.Name)[0]
	case 1:
		b.run(b.now, "release", b.keys(some), "nobody", Released, "wake:", string(WakeAny), 0, 0)
		b.node.Release(b.now, some, End{Nonce: "nobody", Cause: Released, Wake: WakeAny})
		return nil, nil
	}
	return b.node.Acquire(b.now, some, c), b.acquire(some, &c)
}

// TestQueuesFollowTheModel is TestScriptsFollowTheModel for locks that are held, and their waiters.
func TestQueuesFollowTheModel(t *testing.T) {
	t.Parallel()
	b := &both{server: newServer(t, miniredis.RunT(t).Addr()), Rand: rand.New(rand.NewPCG(1, 0)), now: 1_700_000_000_000}
	b.begin()
	b.node = New(b.life)
	state := b.key("node")
	b.node.Join(b.now, Join{Nonce: "j", Version: 1, Fleet: "f", Keep: 1, Gap: 1})
	b.run(b.now, "join", []string{state}, "j", 1, "f", 1, 0, 1)
	b.node.Init(b.now, Range{Join: "j", Version: 1, Fleet: "f", Member: "m", Ceiling: 1000})
	b.run(b.now, "init", []string{state, prefix + "life"}, "j", 1, "f", "m", 0, 1000, 0, "")
	holder := Call{Version: 1, Fleet: "f", Nonce: "holder", TTL: 1_000_000_000}
	b.node.Acquire(b.now, resources, holder)
	b.acquire(resources, &holder)
	waiters, left := 0, 0
	for step := range 600 {
		model, real := b.queueStep()
		require.Equal(t, model, real, "step %d", step)
		if model == "1" {
			left++
		}
		waiters += b.same(fmt.Sprintf("step %d", step))
	}
	require.Greater(t, waiters, 300)
	require.Greater(t, left, 10)
}

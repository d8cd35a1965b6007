package sim

import (
	"time"

	"github.com/leased-project/leased/fencing"
)

type resource = fencing.Resource

// redisNode is the rules of redlockadapter/scripts for one node, with a clock of
// its own. A test compares them with the scripts.
type redisNode struct {
	*party
	data  bool // without it the node may not vote
	max   fencing.Token
	floor fencing.Token
	epoch uint64
	join  string
	since time.Duration // when it was first seen to be empty; 0 if it was not
	locks map[resource]value
	ctrs  map[resource]counter
	tombs map[string]time.Duration // until when
}

// value is a lock that is held until a moment.
type value struct {
	name  string
	until time.Duration
}

// counter is the last accepted token of a lock, forgotten at a moment.
type counter struct {
	token fencing.Token
	until time.Duration
}

// reply is the first word of a script's answer, and the number in it.
type reply struct {
	word   string // "ok", "held", "ended", "refused", "taken", "empty", "epoch", "data", "superseded", "wait"
	token  fencing.Token
	left   time.Duration
	holder string
}

func newRedisNode(p *party) *redisNode {
	n := &redisNode{party: p}
	n.lose()
	n.data, n.epoch = true, 1
	return n
}

// lose is a restart without data.
func (n *redisNode) lose() {
	n.data, n.max, n.floor, n.epoch, n.join, n.since = false, 0, 0, 0, "", 0
	n.locks, n.ctrs, n.tombs = map[resource]value{}, map[resource]counter{}, map[string]time.Duration{}
}

// lock is the holder of a lock, "" if it is free.
func (n *redisNode) lock(name resource, now time.Duration) (value, bool) {
	v, ok := n.locks[name]
	return v, ok && v.until > now
}

// ctr is the counter of a lock, or what it falls back to.
func (n *redisNode) ctr(name resource, now time.Duration) (token fencing.Token, known bool) {
	if c, ok := n.ctrs[name]; ok && c.until > now {
		return c.token, true
	}
	return n.max, false
}

// adopt is what every vote begins with: an older epoch is refused, a newer one
// is taken over.
func (n *redisNode) adopt(epoch uint64) (reply, bool) {
	switch {
	case !n.data:
		return reply{word: "empty"}, false
	case n.epoch > epoch:
		return reply{word: "epoch"}, false
	}
	n.epoch = epoch
	return reply{}, true
}

// acquire is acquire.lua for one attempt and one lock.
func (n *redisNode) acquire(now time.Duration, name resource, attempt string, ttl, keep time.Duration, epoch uint64) reply {
	if r, ok := n.adopt(epoch); !ok {
		return r
	}
	held, locked := n.lock(name, now)
	token, known := n.ctr(name, now)
	top := max(token, n.floor)
	switch {
	case n.tombs[attempt] > now:
		return reply{word: "ended"}
	case locked && held.name != attempt:
		return reply{word: "held", left: held.until - now, holder: held.name}
	case locked && known:
		return reply{word: "ok", token: top}
	}
	top++
	n.locks[name] = value{attempt, now + ttl}
	n.ctrs[name] = counter{top, now + keep}
	n.max = max(n.max, top)
	return reply{word: "ok", token: top}
}

// raise is raise.lua.
func (n *redisNode) raise(now time.Duration, name resource, attempt string, to fencing.Token, keep time.Duration, epoch uint64) reply {
	if r, ok := n.adopt(epoch); !ok {
		return r
	}
	held, locked := n.lock(name, now)
	if token, _ := n.ctr(name, now); !locked || held.name != attempt || token > to {
		return reply{word: "refused"}
	}
	n.ctrs[name] = counter{to, now + keep}
	n.max = max(n.max, to)
	return reply{word: "ok", token: to}
}

// renew is renew.lua.
func (n *redisNode) renew(now time.Duration, name resource, attempt string, token fencing.Token, ttl, keep time.Duration) reply {
	if !n.data {
		return reply{word: "empty"}
	}
	held, locked := n.lock(name, now)
	last, known := n.ctr(name, now)
	switch {
	case n.tombs[attempt] > now:
		return reply{word: "ended"}
	case locked && held.name != attempt || !locked && last > token:
		return reply{word: "taken"}
	}
	n.locks[name] = value{attempt, now + ttl}
	if !known {
		last = 0
	}
	n.ctrs[name] = counter{max(last, token), now + keep}
	n.max = max(n.max, token)
	return reply{word: "ok", token: token}
}

// release is release.lua, less those who wait.
func (n *redisNode) release(now time.Duration, name resource, attempt string, tomb time.Duration) {
	if tomb > 0 {
		n.tombs[attempt] = now + tomb
	}
	if held, locked := n.lock(name, now); locked && held.name == attempt {
		delete(n.locks, name)
	}
}

// prepare is prepare.lua.
func (n *redisNode) prepare(epoch uint64) reply {
	if r, ok := n.adopt(epoch); !ok {
		return r
	}
	return reply{word: "ok", token: n.max}
}

// beginJoin is join.lua.
func (n *redisNode) beginJoin(now time.Duration, nonce string) reply {
	if n.data {
		return reply{word: "data"}
	}
	n.join = nonce
	if n.since == 0 {
		n.since = now
	}
	return reply{word: "ok", left: now - n.since}
}

// init is init.lua.
func (n *redisNode) init(now time.Duration, nonce string, epoch uint64, floor fencing.Token, quarantine time.Duration) reply {
	switch {
	case n.data:
		return reply{word: "data"}
	case n.join != nonce || nonce == "":
		return reply{word: "superseded"}
	case n.epoch > epoch:
		return reply{word: "epoch"}
	}
	passed := now - n.since
	if left := quarantine - passed; left > 0 {
		if passed < 0 {
			n.since = 0
		}
		return reply{word: "wait", left: min(left, quarantine)}
	}
	n.data, n.max, n.epoch, n.floor, n.join, n.since = true, floor, epoch, floor, "", 0
	return reply{word: "ok"}
}

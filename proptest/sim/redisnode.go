package sim

import (
	"maps"
	"time"

	"github.com/leased-project/leased/fencing"
)

type resource = fencing.Resource

// slack is by how much more than needed a node raises max.
const slack = 64

// redisNode is the rules of redlockadapter/scripts for one node, with a clock of
// its own. A test compares them with the scripts.
type redisNode struct {
	*party
	data   bool // without it the node may not vote
	doubt  bool // it was restarted, and says that it has lost nothing
	max    fencing.Token
	floor  fencing.Token
	epoch  uint64
	buried time.Duration // until when there may be tombstones
	join   string
	since  time.Duration // when it was first seen not to vote; 0 if it was not
	turned time.Duration // when the locks were last put aside; 0 if never
	locks  map[resource]value
	old    map[resource]value       // that were put aside
	tombs  map[string]time.Duration // until when

	word  bool       // it has its vote by the word of nodes that were restarted
	wrong bool       // it says that it has lost nothing, and has
	saved *redisNode // what was on its disk when it crashed last
}

// value is the counter of a lock, and who holds it until when.
type value struct {
	counter fencing.Token
	until   time.Duration // 0 if it was released
	name    string
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
	*n = redisNode{party: n.party, locks: map[resource]value{}, old: map[resource]value{}, tombs: map[string]time.Duration{}}
}

// restart is admit.lua on a server that writes everything to disk before it answers.
func (n *redisNode) restart() {
	n.doubt = n.doubt || n.data
	n.data, n.join, n.since = false, "", 0
}

// save notes what is on its disk.
func (n *redisNode) save() {
	old := *n
	old.locks, old.old, old.tombs = maps.Clone(n.locks), maps.Clone(n.old), maps.Clone(n.tombs)
	n.saved = &old
}

// goBack is a crash after which it comes back with what was saved before, and
// says that it has lost nothing.
func (n *redisNode) goBack() {
	old := *n.saved
	*n = old
	n.save() // it may be put back again
	n.wrong = true
}

// lock is what is known of a lock.
func (n *redisNode) lock(name resource) (v value, known bool) {
	if v, known = n.locks[name]; !known {
		v, known = n.old[name]
	}
	return v, known
}

// ended reports whether there is a tombstone for an attempt.
func (n *redisNode) ended(attempt string, now time.Duration) bool {
	return n.buried > now && n.tombs[attempt] > now
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
func (n *redisNode) acquire(now time.Duration, name resource, attempt string, ttl time.Duration, epoch uint64) reply {
	if r, ok := n.adopt(epoch); !ok {
		return r
	}
	if n.buried <= now {
		n.buried = 0
	}
	v, known := n.lock(name)
	if !known {
		v.counter = n.max
	}
	switch {
	case n.ended(attempt, now):
		return reply{word: "ended"}
	case v.until > now && v.name != attempt:
		return reply{word: "held", left: v.until - now, holder: v.name}
	case v.until > now:
		n.locks[name] = value{v.counter, now + ttl, attempt}
		return reply{word: "ok", token: v.counter}
	}
	top := max(v.counter, n.floor) + 1
	if top > n.max {
		n.max = top + slack
	}
	n.locks[name] = value{top, now + ttl, attempt}
	return reply{word: "ok", token: top}
}

// raise is raise.lua.
func (n *redisNode) raise(now time.Duration, name resource, attempt string, to fencing.Token, epoch uint64) reply {
	if r, ok := n.adopt(epoch); !ok {
		return r
	}
	v, _ := n.lock(name)
	if v.until <= now || v.name != attempt || v.counter > to || to <= n.floor {
		return reply{word: "refused"}
	}
	n.locks[name] = value{to, v.until, attempt}
	n.max = max(n.max, to)
	return reply{word: "ok", token: to}
}

// renew is renew.lua.
func (n *redisNode) renew(now time.Duration, name resource, attempt string, token fencing.Token, ttl time.Duration) reply {
	if !n.data {
		return reply{word: "empty"}
	}
	v, known := n.lock(name)
	if !known {
		v.counter = n.max
	}
	switch free := v.until <= now; {
	case n.ended(attempt, now):
		return reply{word: "ended"}
	case free && max(v.counter, n.floor) > token || !free && v.name != attempt:
		return reply{word: "taken"}
	}
	n.locks[name] = value{max(v.counter, token), now + ttl, attempt}
	n.max = max(n.max, token)
	return reply{word: "ok", token: token}
}

// release is release.lua, less those who wait.
func (n *redisNode) release(now time.Duration, name resource, attempt string, tomb time.Duration) {
	if tomb > 0 {
		n.tombs[attempt] = now + tomb
		if n.data || n.doubt {
			n.buried = max(n.buried, now+tomb)
		}
	}
	if v, known := n.lock(name); known && v.until != 0 && v.name == attempt {
		n.locks[name] = value{counter: v.counter}
	}
}

// turn is turn.lua: it forgets locks that nobody has used for a while.
func (n *redisNode) turn(now, keep time.Duration) reply {
	if !n.data {
		return reply{word: "empty"}
	}
	passed := now - n.turned
	switch {
	case n.turned != 0 && passed >= 0 && passed < keep:
		return reply{word: "ok"}
	case n.turned != 0 && passed >= 0:
		n.old, n.locks = n.locks, map[resource]value{}
	}
	n.turned = now
	return reply{word: "ok"}
}

// prepare is prepare.lua.
func (n *redisNode) prepare(epoch uint64, believe bool) reply {
	switch {
	case !n.data && !(n.doubt && believe):
		return reply{word: "empty"}
	case n.epoch > epoch:
		return reply{word: "epoch"}
	}
	n.epoch = epoch
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
func (n *redisNode) init(now time.Duration, nonce string, epoch uint64, floor fencing.Token, quarantine time.Duration, believed bool) reply {
	switch {
	case n.data:
		return reply{word: "data"}
	case n.join != nonce || nonce == "":
		return reply{word: "superseded"}
	case n.epoch > epoch:
		return reply{word: "epoch"}
	}
	passed := now - n.since
	if left := quarantine - passed; left > 0 && !n.doubt {
		if passed < 0 {
			n.since = 0
		}
		return reply{word: "wait", left: min(left, quarantine)}
	}
	if n.doubt {
		floor = max(floor, n.max)
	}
	n.data, n.max, n.epoch, n.floor, n.join, n.since = true, floor, epoch, floor, "", 0
	n.doubt, n.word, n.wrong = false, believed, false
	return reply{word: "ok"}
}

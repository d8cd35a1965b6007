package sim

import (
	"fmt"
	"strconv"
	"time"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// searchTimeout bounds the search for a member, and memberTime one answer, as in
	// internal/remote.
	searchTimeout = 5 * time.Second
	memberTime    = searchTimeout * 3 / 5
	// maxQuiet is how many checks in a row a client may stay with a member that sends
	// nothing: three seconds.
	maxQuiet = int(3 * time.Second / clientcore.SilenceCheckInterval)
)

// links are the connections of a client to the members, one at a time. They decide as
// internal/remote does, with clientcore.Members and clientcore.Silence.
type links struct {
	*client
	members      *clientcore.Members
	current      *link
	connecting   []func(*link, error) // callers that wait for the connection being opened
	disconnected func()               // called when a connection drops
	leader       string               // the address to connect to next, empty for the next member
	next         int
}

// link is a connection to a member, with its session stream.
type link struct {
	owner    *links
	slot     *slot
	address  string
	left     bool
	received uint64 // messages
	silence  clientcore.Silence
	quiet    int                         // checks since the last message
	pending  map[int]func(answer, error) // the callbacks of operations without an answer
	last     int
}

func newLinks(c *client, disconnected func()) *links {
	l := &links{client: c, disconnected: disconnected}
	var all []string
	for i := range c.w.cluster.slots {
		all = append(all, strconv.Itoa(i))
	}
	l.members = clientcore.NewMembers(all)
	return l
}

// connect passes on the connection in use, or opens one.
func (l *links) connect(done func(*link, error)) {
	if l.current != nil {
		done(l.current, nil)
		return
	}
	if l.connecting = append(l.connecting, done); len(l.connecting) > 1 {
		return
	}
	began, address := l.now(), l.leader
	if l.leader = ""; address == "" {
		address, l.next = l.members.Next(began, l.next)
	}
	number, _ := strconv.Atoi(address)
	at := l.w.cluster.slots[number]
	decided, life := false, l.life
	decide := func(err error) {
		if decided || life != l.life {
			return
		}
		decided = true
		l.members.Connected(l.now(), began, address, err, false)
		var opened *link
		if err == nil {
			opened = &link{owner: l, slot: at, address: address, pending: map[int]func(answer, error){}}
			l.current = opened
			opened.beat()
			opened.check()
		}
		callers := l.connecting
		l.connecting = nil
		for _, done := range callers {
			done(opened, err)
		}
	}
	l.w.send(l.process, at.process, true, func() { l.w.send(at.process, l.process, true, func() { decide(nil) }) })
	l.w.timer(l.process, l.members.ConnectTime(began, address), func() {
		decide(fmt.Errorf("%w: no connection", engine.ErrUnavailable))
	})
}

// beat sends heartbeats from the member, as long as it runs.
func (k *link) beat() {
	w, o := k.owner.w, k.owner
	w.timer(k.slot.process, clientcore.HeartbeatInterval, func() {
		if k.left {
			return
		}
		w.send(k.slot.process, o.process, true, k.receive)
		k.beat()
	})
}

// receive counts a message of the member.
func (k *link) receive() {
	if !k.left {
		k.received++
		k.quiet = 0
		k.owner.members.Answered(k.address)
	}
}

// check leaves a member that is silent.
func (k *link) check() {
	l := k.owner
	l.w.timer(l.process, clientcore.SilenceCheckInterval, func() {
		if k.left {
			return
		}
		if k.quiet++; k.quiet > maxQuiet && l.w.plan.soundClientClocks() {
			l.w.violation(fmt.Errorf("%s stays with member %s, which has sent nothing for %v", l.name, k.address,
				time.Duration(k.quiet)*clientcore.SilenceCheckInterval))
		}
		if k.silence.Check(l.now(), k.received) {
			l.members.FellSilent(l.now(), k.address)
			l.abandon(k, "")
			return
		}
		k.check()
	})
}

// abandon leaves a connection. The outcome of its operations is uncertain.
func (l *links) abandon(k *link, leader string) {
	if l.current == k {
		l.current, l.leader = nil, leader
	}
	if k.left {
		return
	}
	k.left = true
	for id := 1; id <= k.last; id++ {
		if got := k.pending[id]; got != nil {
			delete(k.pending, id)
			got(answer{}, engine.ErrUncertain)
		}
	}
	l.disconnected()
}

// do sends an operation on a connection. If it has a limit and is not answered by then, the
// client leaves the member.
func (k *link) do(limit time.Duration, do func(*replica, func(answer)), got func(answer, error)) {
	l := k.owner
	k.last++
	id, life := k.last, l.life
	k.pending[id] = got
	l.w.send(l.process, k.slot.process, false, func() {
		do(k.slot.replica, func(a answer) {
			l.w.send(k.slot.process, l.process, false, func() {
				got := k.pending[id]
				if k.left || got == nil || life != l.life {
					return
				}
				k.receive()
				delete(k.pending, id)
				got(a, nil)
			})
		})
	})
	if limit == 0 {
		return
	}
	l.w.timer(l.process, limit, func() {
		if k.pending[id] != nil {
			l.abandon(k, "")
		}
	})
}

// request sends an operation to a member that serves it.
func (l *links) request(limit time.Duration, do func(*replica, func(answer)), got func(answer, error)) {
	l.search(clientcore.NewSearch(l.now(), searchTimeout), limit, do, got)
}

func (l *links) search(s *clientcore.Search, limit time.Duration, do func(*replica, func(answer)),
	got func(answer, error)) {
	missed := func(k *link, miss clientcore.Miss) {
		turn := l.members.Missed(l.now(), s, miss)
		if turn.Leave {
			l.abandon(k, turn.Leader)
		}
		if !turn.Again {
			got(answer{}, turn.Err)
			return
		}
		l.w.timer(l.process, turn.Pause, func() { l.search(s, limit, do, got) })
	}
	l.connect(func(k *link, err error) {
		if err != nil {
			missed(nil, clientcore.Miss{Again: true, Err: err})
			return
		}
		k.do(limit, do, func(a answer, err error) {
			miss := clientcore.Miss{Address: k.address, Reached: true, Err: err}
			switch {
			case err == nil && a.state == notLeader:
				miss.Redirected, miss.Err = true, engine.ErrUnavailable
				if a.leader >= 0 {
					miss.Leader = strconv.Itoa(a.leader)
				}
			case err == nil && a.state == uncertain:
				miss.Err = engine.ErrUncertain
			case err == nil:
				got(a, nil)
				return
			}
			missed(k, miss)
		})
	})
}

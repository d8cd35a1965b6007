package redisnode

import (
	"maps"
	"slices"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// Record is the record of one lock. The zero Record stands for a missing one.
type Record struct {
	Nonce        string // the attempt that holds the lock until Until; "" if none
	Until        int64
	Token        fencing.Token // of Nonce: the granted one once the node knows it, before that the accepted one
	Counter      fencing.Token // the largest token that was accepted, if it is above Token
	Renewed      fencing.Token // the token of the lease that was renewed last here
	Details      string
	Released     string        // the attempt that was released last here
	Ended        fencing.Token // the largest token whose lease was released or broken here
	Broken       string        // the attempt that was broken last here
	Waiting      bool          // there may be waiters
	Waiters      []Waiter
	WaitersUntil int64            // when the queue of waiters expires
	Seen         map[string]int64 // when each waiter asked last, by its name
}

// Waiter is one waiter in a lock's queue.
type Waiter struct {
	Ticket int64
	Name   string // "PROCESS HOLDER"
}

// Process returns the waiting process.
func (w Waiter) Process() string { return strings.Fields(w.Name)[0] }

// held reports whether some attempt holds the lock.
func (r *Record) held(now int64) bool { return r.Nonce != "" && r.Until > now }

// last returns the token that the next one must exceed, besides the floor.
func (r *Record) last(s *State) fencing.Token {
	if r.Token != fencing.None {
		return max(r.Token, r.Counter)
	}
	return max(s.Max, r.Counter)
}

func (r *Record) queue(now int64) []Waiter {
	if r.WaitersUntil <= now {
		r.Waiters, r.Seen = nil, nil
	}
	return r.Waiters
}

// waiterTTL is how long a node knows a waiter that does not ask again.
const waiterTTL = 5_000

// wait adds a waiter, or changes its ticket. It removes waiters that have not asked for a while.
func (r *Record) wait(now int64, w Waiter) {
	r.queue(now)
	r.Seen = maps.Clone(r.Seen)
	if r.Seen == nil {
		r.Seen = map[string]int64{}
	}
	r.Seen[w.Name] = now
	gone := func(name string, seen int64) bool { return seen <= now-waiterTTL }
	queue := slices.DeleteFunc(slices.Clone(r.Waiters), func(o Waiter) bool {
		seen, known := r.Seen[o.Name]
		return o.Name == w.Name || known && gone(o.Name, seen)
	})
	maps.DeleteFunc(r.Seen, gone)
	at, _ := slices.BinarySearchFunc(queue, w, func(a, b Waiter) int {
		if a.Ticket != b.Ticket {
			return int(min(1, max(-1, a.Ticket-b.Ticket)))
		}
		return strings.Compare(a.Name, b.Name)
	})
	r.Waiters, r.Waiting = slices.Insert(queue, at, w), true
	r.WaitersUntil = now + waiterTTL
}

func (r *Record) leave(now int64, name string) {
	r.Waiters = slices.DeleteFunc(slices.Clone(r.queue(now)), func(o Waiter) bool { return o.Name == name })
}

func (r *Record) take(c *Call, until int64, token fencing.Token) {
	r.Nonce, r.Until, r.Token = c.Nonce, until, token
}

// Wake says which waiters a release wakes.
type Wake string

const (
	// WakeNext wakes the longest waiter if the release freed the lock.
	WakeNext Wake = "next"
	// WakeAny wakes the longest waiter in any case.
	WakeAny Wake = "any"
	// WakeNone wakes no waiter.
	WakeNone Wake = "none"
)

// The causes of a release.
const (
	Released  = "released"
	Broken    = "broken"
	Withdrawn = "withdrawn"
)

// Cause returns why the last attempt ended.
func (r *Record) Cause() string {
	if r.Released != "" && r.Released == r.Broken {
		return Broken
	}
	return Released
}

// End has the arguments of release.
type End struct {
	Nonce  string
	Token  fencing.Token // None if the attempt was not granted
	Cause  string
	Wake   Wake
	Refuse bool // late calls of the attempt, also where it held nothing
	// Version and Fleet are those of a break.
	Version uint64
	Fleet   string
}

// Release is release.lua. It returns the woken waiters, and whether the node confirms a break.
func (s *State) Release(now int64, locks []*Record, e End) (woken []Waiter, reply Reply) {
	for _, r := range locks {
		freed := r.Nonce == e.Nonce
		kept := freed && e.Cause == Withdrawn && r.Renewed == r.Token
		if kept {
			freed = false
		} else if freed || e.Refuse || e.Token != fencing.None {
			if freed {
				r.Nonce = ""
			}
			r.Released, r.Ended = e.Nonce, max(r.Ended, e.Token)
			if r.Until == 0 {
				r.Until = now
			}
		}
		if e.Cause == Broken {
			r.Broken = e.Nonce
		}
		if r.Waiting && (e.Wake == WakeAny || e.Wake == WakeNext && freed) {
			if queue := r.queue(now); len(queue) > 0 {
				woken, r.Waiters = append(woken, queue[0]), slices.Clone(queue[1:])
			} else {
				r.Waiting = false
			}
		}
	}
	if e.Cause == Broken {
		reply, _ = s.admit(&Call{Version: e.Version, Fleet: e.Fleet})
	}
	return woken, reply
}

package server

import (
	"strings"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
)

// maxDirty is how many changed locks are kept for one watcher; beyond it the
// watcher looks at all locks.
const maxDirty = 4096

// Feed passes the events of the Raft machine on to watchers, and remembers why
// leases ended. It must be the Observer of the Config.Node of its Server: every
// replica applies the same log, so a new leader knows the earlier reasons.
type Feed struct {
	ended *reasons

	mu        sync.Mutex
	followers map[*follower]bool
}

var _ raftstore.Observer = (*Feed)(nil)

// NewFeed returns a Feed for one node and its server.
func NewFeed() *Feed { return &Feed{ended: newReasons(), followers: map[*follower]bool{}} }

// follower is a watcher of one lock, or of all with a prefix. Its fields are
// guarded by the mu of its Feed.
type follower struct {
	feed  *Feed
	match func(fencing.Resource) bool
	wake  chan struct{} // has room for one
	dirty map[fencing.Resource]bool
	all   bool
}

// Applied notes reasons, and wakes watchers.
func (f *Feed) Applied(_ uint64, events []machine.Event) {
	for i := range events {
		e := &events[i]
		switch e.Type {
		case machine.EventReleased, machine.EventExpired, machine.EventBroken:
			f.ended.note(attempt{e.Session, e.Nonce}, e.Type.String())
		}
		f.touch(e.Resources...)
	}
}

// Restored has all watchers look at everything again.
func (f *Feed) Restored(*machine.Machine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.followers {
		w.all = true
		w.poke()
	}
}

// touch says that something happened to some locks.
func (f *Feed) touch(names ...fencing.Resource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.followers {
		for _, name := range names {
			if w.all || !w.match(name) {
				continue
			}
			if len(w.dirty) == maxDirty {
				w.all = true
			} else {
				w.dirty[fencing.Resource(strings.Clone(string(name)))] = true
			}
			w.poke()
		}
	}
}

// poke is called with mu held.
func (w *follower) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// follow begins to note the changes of the locks that match.
func (f *Feed) follow(match func(fencing.Resource) bool) *follower {
	w := &follower{feed: f, match: match, wake: make(chan struct{}, 1), dirty: map[fencing.Resource]bool{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followers[w] = true
	return w
}

// take returns what has changed since the last call; all says that it is not
// known what, and may be anything.
func (w *follower) take() (names map[fencing.Resource]bool, all bool) {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	names, all = w.dirty, w.all
	w.dirty, w.all = map[fencing.Resource]bool{}, false
	return names, all
}

func (w *follower) stop() {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	delete(w.feed.followers, w)
}

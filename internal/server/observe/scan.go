package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

const (
	// scanInterval is the shortest time between two scans.
	scanInterval = 500 * time.Millisecond
	// redisInterval is the shortest time between two lists of the Redis nodes. A list is no
	// longer shown if it is not replaced within outdated after that.
	redisInterval, outdated = time.Second, 3 * time.Second
	// redisTimeout bounds a list of the Redis nodes, and firstList the time for which a
	// scan waits if there is none.
	redisTimeout, firstList = 5 * time.Second, time.Second
	// maxInRedis is the number of locks in efficiency mode that are listed. Each costs a
	// request to every node.
	maxInRedis = 20_000
	// share is the part of the time that a member spends on scans: 1/share. longest is the
	// longest time between two of them.
	share, longest = 20, 30 * time.Second
)

// row is what a scan knows about a lock.
type row struct {
	name             fencing.Resource
	mode             engine.Mode
	holders, waiters int
	oldest           fencing.Token  // of the first holder in correctness mode
	since            int64          // when the oldest holder got the lock, in milliseconds; 0 if unknown
	rate             float64        // grants per second
	refused          int64          // writes
	status           *engine.Status // of a lock in efficiency mode
}

func (r *row) inUse() bool { return r.holders+r.waiters > 0 }

// scan has all locks in use, and all locks with grants or refused writes, by name. It is
// immutable.
type scan struct {
	rows    []row
	grants  float64 // per second, of all locks in correctness mode
	missing string  // why locks in efficiency mode are missing
	sorted  sync.Map
}

// redisList is a list of the locks in efficiency mode.
type redisList struct {
	at      engine.Instant
	rows    []row
	tokens  map[fencing.Resource]fencing.Token // of the last holder of each lock
	missing string
}

// scan returns the last scan, or a new one if that is due. All callers share it. Expensive
// scans are rarer.
func (s *Service) scan() *scan {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := s.router.Clock.Now()
	if s.last != nil && begin.Until(s.next) > 0 {
		return s.last
	}
	s.last = s.scanAll()
	s.next = begin.Add(s.pause(begin, scanInterval))
	return s.last
}

// pause returns the time from one scan, which began at begin and is complete, to the next.
func (s *Service) pause(begin engine.Instant, least time.Duration) time.Duration {
	return max(least, min(longest, share*s.router.Clock.Now().Since(begin)))
}

func (s *Service) scanAll() *scan {
	usage := s.recorder.Usage()
	result := &scan{grants: s.recorder.GrantsPerSecond()}
	add := func(r row) {
		u := usage[r.name]
		delete(usage, r.name)
		r.rate, r.refused = r.rate+u.GrantsPerSecond, u.Refused
		result.rows = append(result.rows, r)
	}
	for after := fencing.Resource(""); ; {
		page := s.router.Node.Summaries(after)
		for _, l := range page {
			r := row{name: l.Resource, mode: engine.Correctness, holders: l.Holders, waiters: l.Waiters, oldest: l.Oldest}
			if since := s.recorder.Granted(l.Oldest); !since.IsZero() {
				r.since = since.UnixMilli()
			}
			add(r)
		}
		if len(page) < raftstore.MaxPage {
			break
		}
		after = page[len(page)-1].Resource
	}
	inRedis := s.redisNow()
	result.missing = inRedis.missing
	for _, r := range inRedis.rows {
		add(r)
	}
	for name := range usage { // free at the moment
		add(row{name: name, mode: s.router.ModeOf(name)})
	}
	slices.SortFunc(result.rows, func(a, b row) int { return cmp.Compare(a.name, b.name) })
	return result
}

// redisNow returns the last list of the locks in efficiency mode, and starts a new one if
// that is due. Only the first call, and the first one after a time without viewers, waits for
// it, so nodes that do not answer do not delay other scans.
func (s *Service) redisNow() redisList {
	s.redisMu.Lock()
	defer s.redisMu.Unlock()
	begin := s.router.Clock.Now()
	if s.listing == nil && (s.inRedis.at.IsZero() || begin.Until(s.redisNext) <= 0) {
		s.listing = make(chan struct{})
		go s.renewRedisList(s.inRedis, begin, s.listing)
		if begin.Since(s.redisNext) > outdated {
			s.inRedis = redisList{}
		}
	}
	if s.inRedis.at.IsZero() {
		done := s.listing
		s.redisMu.Unlock()
		select {
		case <-done:
		case <-time.After(firstList):
		}
		s.redisMu.Lock()
	}
	if s.inRedis.at.IsZero() {
		return redisList{missing: "the Redis nodes have not answered yet"}
	}
	return s.inRedis
}

// renewRedisList reads a new list. It returns within redisTimeout.
func (s *Service) renewRedisList(before redisList, begin engine.Instant, done chan struct{}) {
	list := s.readRedis(before, begin)
	s.redisMu.Lock()
	defer s.redisMu.Unlock()
	s.inRedis, s.listing = list, nil
	s.redisNext = begin.Add(s.pause(begin, redisInterval))
	close(done)
}

func (s *Service) readRedis(before redisList, now engine.Instant) redisList {
	list := redisList{at: now, tokens: map[fencing.Resource]fencing.Token{}}
	if s.router.Node.Topology().Fleet.IsZero() {
		return list
	}
	var locks []engine.Status
	backend, err := s.router.Redis.Backend()
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
		defer cancel()
		locks, err = backend.List(ctx, "", "", maxInRedis)
	}
	switch {
	case err != nil:
		// The error names the nodes, which not every caller may know.
		list.missing = "the Redis nodes did not answer; see 'leased redis status'"
	case len(locks) == maxInRedis:
		list.missing = fmt.Sprintf("only the first %d locks in efficiency mode are listed", maxInRedis)
	}
	passed := now.Since(before.at).Seconds()
	for i := range locks {
		l := &locks[i]
		if s.router.ModeOf(l.Resource) != engine.Efficiency {
			continue // its lease may still be on the nodes, and the gates refuse the token
		}
		r := row{name: l.Resource, mode: engine.Efficiency, holders: len(l.Holders), waiters: len(l.Waiters), status: l}
		if len(l.Holders) > 0 {
			if since := l.Holders[0].Since; !since.IsZero() {
				r.since = since.UnixMilli()
			}
			token := l.Holders[0].Token
			list.tokens[l.Resource] = token
			// The token of a lock grows by one with each grant, unless its range changes.
			if last := before.tokens[l.Resource]; last != fencing.None && token > last && token-last < 1<<31 {
				r.rate = float64(token-last) / passed
			}
		}
		list.rows = append(list.rows, r)
	}
	return list
}

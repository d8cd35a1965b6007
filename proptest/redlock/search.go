package redlock

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"unsafe"

	"github.com/leased-project/leased/redlockadapter/quorum"
)

// Search visits every World that can be reached from the first, once.
type Search struct {
	Attempts int
	Joins    int
	Renew    bool // granted attempts renew
	Back     bool // nodes come back with old data, too

	Visited int
	seed    maphash.Seed
	seen    fingerprints
	then    func(next *World, err error, e event) error // what to do with a step
	named   World                                       // room for key
	free    []*World                                    // room for worlds to come
}

// Run returns the first violation, with the way that leads to it.
func (s *Search) Run(w World) error {
	s.seed, s.seen, s.Visited = maphash.MakeSeed(), newFingerprints(), 0
	s.then = func(next *World, err error, e event) error {
		if err == nil {
			err = s.visit(next)
		}
		return e.led(err)
	}
	return s.visit(&w)
}

// Walk goes one way at random until nothing can happen any more, or for so many
// steps. It finds what
// is many steps away sooner than Run does, if there are many ways to it.
func (s *Search) Walk(w World, r *rand.Rand, left int) error {
	steps, chosen, happened := 0, w, event{}
	var failed error
	s.then = func(next *World, err error, e event) error {
		if steps++; r.IntN(steps) == 0 { // each of them with the same chance
			chosen, failed, happened = *next, err, e
		}
		return nil
	}
	_ = s.steps(&w) // it only collects
	s.Visited++
	if failed != nil || steps == 0 || left == 0 {
		return happened.led(failed)
	}
	return happened.led(s.Walk(chosen, r, left-1))
}

// key is a fingerprint of a World that is the same for worlds which differ only
// in names: of nodes, of attempts, and of joins.
func (s *Search) key(w *World) uint64 {
	used := unsafe.Offsetof(w.Columns) + uintptr(w.Nodes)*unsafe.Sizeof(w.Columns[0])
	best := ^uint64(0)
	for range max(1, s.Attempts) {
		for range max(1, s.Joins) {
			s.named = *w
			sortColumns(s.named.columns())
			best = min(best, maphash.Bytes(s.seed, raw(&s.named)[:used]))
			w.rotateJoins(s.Joins)
		}
		w.rotateAttempts(s.Attempts)
	}
	return best
}

// fork is a copy of a World for a step to change; follow goes on with it.
func (s *Search) fork(w *World) *World {
	if len(s.free) == 0 {
		s.free = append(s.free, new(World))
	}
	next := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	*next = *w
	return next
}

func (s *Search) follow(next *World, err error, e event) error {
	err = s.then(next, err, e)
	s.drop(next)
	return err
}

func (s *Search) drop(next *World) { s.free = append(s.free, next) }

// sortColumns puts columns in order.
func sortColumns(columns []Column) {
	for i := 1; i < len(columns); i++ {
		for j := i; j > 0 && bytes.Compare(raw(&columns[j]), raw(&columns[j-1])) < 0; j-- {
			columns[j], columns[j-1] = columns[j-1], columns[j]
		}
	}
}

// raw is the memory of a value that has no pointers and no padding.
func raw[T Column | World](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

func (s *Search) visit(w *World) error {
	if !s.seen.add(s.key(w)) {
		return nil
	}
	s.Visited++
	return s.steps(w)
}

// event is what happened, for the way to a violation.
type event struct {
	what    string
	who     int
	a, b, c uint8
}

// led puts the event before the violation that it led to.
func (e event) led(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s (%d: %d, %d, %d)\n%w", e.what, e.who, e.a, e.b, e.c, err)
}

// steps tries everything that can happen next.
func (s *Search) steps(w *World) error {
	if err := s.starts(w); err != nil {
		return err
	}
	if next := s.fork(w); !next.settle() {
		s.drop(next)
	} else if err := s.follow(next, nil, event{what: "a majority has data again"}); err != nil {
		return err
	}
	for node := range w.columns() {
		c := &w.Columns[node]
		if c.Lock != 0 {
			next := s.fork(w)
			next.Columns[node].Lock = 0
			if err := s.follow(next, nil, event{what: "the lock of an attempt ends on a node", who: int(c.Lock) - 1}); err != nil {
				return err
			}
		}
		if err := s.losses(w, node); err != nil {
			return err
		}
		for a := range s.Attempts {
			if err := s.talk(w, a, node); err != nil {
				return err
			}
		}
		for j := range s.Joins {
			if err := s.rejoin(w, j, node); err != nil {
				return err
			}
		}
	}
	return nil
}

// losses are all the ways to lose data: a node forgets everything, or comes back
// with anything that it may have had and says that this is all.
func (s *Search) losses(w *World, node int) error {
	c := &w.Columns[node]
	lose := func(how func(*Column), e event) error {
		next := s.fork(w)
		if !next.lose(node, how) {
			s.drop(next)
			return nil
		}
		return s.follow(next, nil, e)
	}
	if next := s.fork(w); !next.restart(node) {
		s.drop(next)
	} else if err := s.follow(next, nil, event{what: "a node is restarted; max, epoch", a: c.Max, b: c.Epoch}); err != nil {
		return err
	}
	if err := lose((*Column).lose, event{what: "a node loses its data; max, epoch", a: c.Max, b: c.Epoch}); err != nil || !s.Back {
		return err
	}
	for lock := range uint8(s.Attempts) + 1 {
		if lock > 0 && c.Talks[lock-1].Acquire < Answered {
			continue // it cannot have had that one
		}
		for ctr := range c.Ctr + 1 {
			for epoch := uint8(1); epoch <= c.Epoch; epoch++ {
				back := func(c *Column) { c.goBack(lock, ctr, epoch) }
				e := event{what: "a node comes back with old data; lock, counter, epoch", a: lock, b: ctr, c: epoch}
				if err := lose(back, e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// starts begins the next attempt, in any epoch that a client may carry: the
// newest usable one, or an older one that it still believes in.
func (s *Search) starts(w *World) error {
	for a := range s.Attempts {
		if w.Attempts[a].Started {
			continue
		}
		usable, _ := quorum.EpochOf(w.reports())
		for epoch := uint8(usable); epoch >= 1; epoch-- {
			next := s.fork(w)
			next.start(a, epoch)
			if err := s.follow(next, nil, event{what: "an attempt starts; epoch", who: a, a: epoch}); err != nil {
				return err
			}
		}
		return nil // attempts have no names either: they start in order
	}
	return nil
}

// talk is all that can happen between an attempt and a node.
func (s *Search) talk(w *World, a, node int) error {
	c := &w.Columns[node]
	t := &c.Talks[a]
	switch t.Acquire {
	case Asked:
		next := s.fork(w)
		next.answerAcquire(a, node)
		says := next.Columns[node].Talks[a].AcquireSays
		if err := s.follow(next, nil, event{what: "an acquire arrives; answer, token, counter", who: a, a: uint8(says.Kind), b: says.Token, c: next.Columns[node].Ctr}); err != nil {
			return err
		}
	case Answered:
		next := s.fork(w)
		err := next.hearAcquire(a, node)
		if err := s.follow(next, err, event{what: "an attempt hears of its acquire; answer, token", who: a, a: uint8(t.AcquireSays.Kind), b: t.AcquireSays.Token}); err != nil {
			return err
		}
	}
	switch {
	case t.Raise == Asked && t.Acquire != Asked: // a lane keeps the order
		next := s.fork(w)
		next.answerRaise(a, node)
		if err := s.follow(next, nil, event{what: "a raise arrives; token, counter", who: a, a: t.RaiseTo, b: next.Columns[node].Ctr}); err != nil {
			return err
		}
	case t.Raise == Answered && t.Acquire != Answered:
		next := s.fork(w)
		err := next.hearRaise(a, node)
		if err := s.follow(next, err, event{what: "an attempt hears of its raise; answer, token", who: a, a: uint8(t.RaiseSays.Kind), b: t.RaiseSays.Token}); err != nil {
			return err
		}
	}
	if s.Renew && w.Attempts[a].Outcome == quorum.Granted {
		next := s.fork(w)
		if next.Columns[node].renew(a, w.Attempts[a].Token) && next.Columns[node] != *c {
			return s.follow(next, nil, event{what: "an attempt renews on a node", who: a})
		}
		s.drop(next)
	}
	return nil
}

// rejoin is all that can happen between a join and a node.
func (s *Search) rejoin(w *World, j, node int) error {
	c := &w.Columns[node]
	if !w.Joins[j].Begun && !c.Data && (j == 0 || w.Joins[j-1].Begun) {
		for mask := range 1 << w.Nodes { // any of the nodes may fail to answer
			answers := make([]bool, w.Nodes)
			for i := range answers {
				answers[i] = mask>>i&1 == 1
			}
			if next := s.fork(w); !next.beginJoin(j, node, answers) {
				s.drop(next)
			} else if err := s.follow(next, nil, event{what: "a join begins; epoch", who: j, a: next.Joins[j].Epoch}); err != nil {
				return err
			}
		}
	}
	switch p := c.Prepares[j]; {
	case p.Target && w.Joins[j].Way == Asked:
		next := s.fork(w)
		next.arriveInit(j)
		return s.follow(next, nil, event{what: "an init arrives; epoch, floor", who: j, a: w.Joins[j].Epoch, b: w.Joins[j].Floor})
	case p.Way == Asked:
		next := s.fork(w)
		next.answerPrepare(j, node)
		return s.follow(next, nil, event{what: "a prepare arrives; max", who: j, a: c.Max})
	case p.Way == Answered:
		next := s.fork(w)
		next.hearPrepare(j, node)
		return s.follow(next, nil, event{what: "a join hears of its prepare; max", who: j, a: p.Max})
	}
	return nil
}

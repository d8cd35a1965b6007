package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leased-project/leased/lease/engine"
)

// alone limits the calls that wait for a lock in their own transaction: as many as there is room for, and one at a time
// for a lock that another transaction keeps, so that a busy lock delays no others. The other connections of the pool
// are for renewals and batches.
type alone struct {
	mu      sync.Mutex
	room    int
	locks   map[string]*ownCalls
	waiting []*turn // in the order in which they came
}

// ownCalls describes the calls for a lock.
type ownCalls struct {
	calls    int // under way or waiting
	underWay int
	busy     bool // the last call found the lock busy
}

// turn is a call that waits for its turn.
type turn struct {
	names []string
	begun chan struct{} // closed when it is its turn
}

// do calls send when it is the turn of a call for a lock, or for the locks of a set, one per line.
func (a *alone) do(ctx context.Context, name string, send func() error) error {
	t := &turn{names: strings.Split(name, "\n"), begun: make(chan struct{})}
	a.mu.Lock()
	for _, name := range t.names {
		if a.locks[name] == nil {
			a.locks[name] = &ownCalls{}
		}
		a.locks[name].calls++
	}
	a.waiting = append(a.waiting, t)
	a.start()
	a.mu.Unlock()
	select {
	case <-t.begun:
	case <-ctx.Done():
	}
	defer a.end(t)
	if ctx.Err() != nil {
		return engine.Cause(ctx)
	}
	err := send()
	if err == nil || busy(err) {
		a.mark(t, err)
	}
	return err
}

// start begins the turns of the waiting calls that there is room for. A call with a busy lock waits for the one that is
// under way, and holds up no call for its other locks. a.mu is locked.
func (a *alone) start() {
	a.waiting = slices.DeleteFunc(a.waiting, func(t *turn) bool {
		if a.room == 0 || slices.ContainsFunc(t.names, a.occupied) {
			return false
		}
		a.room--
		for _, name := range t.names {
			a.locks[name].underWay++
		}
		close(t.begun)
		return true
	})
}

// occupied reports whether a lock is busy, and a call waits for it in the database. a.mu is locked.
func (a *alone) occupied(name string) bool { return a.locks[name].busy && a.locks[name].underWay > 0 }

// mark notes which of its locks a call has found busy: the one that the error names, or all of them. It has locked
// those before that one, in the order of their names, and not tried those behind it.
func (a *alone) mark(t *turn, err error) {
	var named *pgconn.PgError
	errors.As(err, &named)
	unnamed := named == nil || !slices.Contains(t.names, named.Detail)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range t.names {
		switch {
		case err == nil || unnamed:
			a.locks[name].busy = err != nil
		case name <= named.Detail:
			a.locks[name].busy = name == named.Detail
		}
	}
}

// end ends a turn, also one that has not begun.
func (a *alone) end(t *turn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	begun := 1
	if i := slices.Index(a.waiting, t); i >= 0 {
		a.waiting, begun = slices.Delete(a.waiting, i, i+1), 0
	}
	a.room += begun
	for _, name := range t.names {
		l := a.locks[name]
		l.underWay -= begun
		if l.calls--; l.calls == 0 {
			delete(a.locks, name)
		}
	}
	a.start()
}

package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// waitingLine tells a person who waits for a lock why: on a terminal as one line
// that is kept up to date, else as one line at the beginning.
type waitingLine struct {
	out      *os.File
	live     bool
	quiet    bool
	resource fencing.Resource
	holder   string

	once   sync.Once
	work   sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	inspect func(context.Context, fencing.Resource) (lease.Status, error) // nil until a member is reached
	began   time.Time
	status  *lease.Status
	since   map[fencing.Token]time.Time // when a holder was first seen here
	trouble error
	queued  bool // the service has said that the lock is held
	drawn   bool
}

func newWaitingLine(out *os.File, resource fencing.Resource, holder string, quiet bool) *waitingLine {
	l := &waitingLine{out: out, live: isatty.IsTerminal(out.Fd()), quiet: quiet, resource: resource, holder: holder,
		since: map[fencing.Token]time.Time{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// ask sets how the line finds out who holds the lock.
func (l *waitingLine) ask(inspect func(context.Context, fencing.Resource) (lease.Status, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inspect = inspect
}

// waiting is the hook of the client: an attempt waits, or has failed and is
// tried again.
func (l *waitingLine) waiting(e lease.Event) {
	l.mu.Lock()
	l.trouble, l.queued = e.Err, e.Err == nil
	l.mu.Unlock()
	if l.quiet {
		return
	}
	l.once.Do(func() {
		l.began = time.Now()
		l.work.Go(l.watch)
		l.work.Go(l.draw)
	})
}

// notQueued is why an attempt that waits is in no queue; nil if it is in one.
func (l *waitingLine) notQueued() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.queued:
		return nil
	case l.trouble != nil:
		return l.trouble
	}
	return errUnreached
}

// end removes the line.
func (l *waitingLine) end() {
	l.cancel()
	l.work.Wait()
	if l.drawn && l.live {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
}

// watch keeps up with who holds the lock.
func (l *waitingLine) watch() {
	for l.ctx.Err() == nil {
		l.mu.Lock()
		inspect := l.inspect
		l.mu.Unlock()
		if inspect == nil {
			inspect = func(context.Context, fencing.Resource) (lease.Status, error) { return lease.Status{}, errUnreached }
		}
		if s, err := inspect(l.ctx, l.resource); err == nil {
			l.mu.Lock()
			l.status = &s
			for _, h := range s.Holders {
				if _, seen := l.since[h.Token]; !seen {
					l.since[h.Token] = time.Now()
				}
			}
			l.mu.Unlock()
		}
		select {
		case <-time.After(time.Second):
		case <-l.ctx.Done():
		}
	}
}

// draw writes the line once something is known, and on a terminal every second.
func (l *waitingLine) draw() {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			return
		}
		text, known := l.text(time.Now())
		switch {
		case l.live:
			fmt.Fprintf(l.out, "\r\x1b[K%s", text)
			l.drawn = true
		case known:
			fmt.Fprintf(l.out, "leased: %s\n", text)
			l.cancel() // nobody looks at later ones
			return
		}
	}
}

// text is the line, and whether it says more than that we wait.
func (l *waitingLine) text(now time.Time) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := fmt.Sprintf("waiting for %q for %s", string(l.resource), seconds(now.Sub(l.began)))
	if l.trouble != nil {
		return fmt.Sprintf("%s: %v; trying again", text, l.trouble), true
	}
	if l.status == nil {
		return text, false
	}
	switch n := len(l.status.Holders); {
	case n > 0:
		h := l.status.Holders[0]
		text += fmt.Sprintf(": held by %s, token %d, seen for %s", nameOf(h.Holder), h.Token, seconds(now.Sub(l.since[h.Token])))
		if n > 1 {
			text += fmt.Sprintf(", and %d more", n-1)
		}
	case l.status.Delayed:
		text += ": closed for its lock-delay"
	}
	for i, w := range l.status.Waiters {
		if w.Holder == l.holder {
			return fmt.Sprintf("%s; place %d of %d in the queue", text, i+1, len(l.status.Waiters)), true
		}
	}
	return text, len(l.status.Holders) > 0
}

func nameOf(holder string) string {
	if holder == "" {
		return "someone without a name"
	}
	return holder
}

func seconds(d time.Duration) time.Duration { return d.Round(time.Second) }

// defaultHolder is this process, as others see it.
func defaultHolder() string {
	host, _ := os.Hostname() // a name for people; without it the process id must do
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

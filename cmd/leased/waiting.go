package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/leased-project/leased/cmd/leased/internal/terminal"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// drawInterval is the time between two drawings of a waitingLine, each with a new inspection of the lock.
const drawInterval = time.Second

// waitingLine shows why the program waits for a lock: on a terminal as a line that
// it keeps up to date, otherwise as one line at the start.
type waitingLine struct {
	out      *os.File
	quiet    bool
	resource fencing.Resource
	holder   string

	work   sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	inspect func(context.Context, fencing.Resource) (lease.Status, error) // nil until a member answers
	began   time.Time
	err     error // why the last try failed
	queued  bool  // the attempt is in the queue of the lock
}

// setInspect sets the function that returns the holders of the lock.
func (l *waitingLine) setInspect(inspect func(context.Context, fencing.Resource) (lease.Status, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inspect = inspect
}

// waiting is the hook of the client: an attempt waits in the queue, or has failed
// and will be retried.
func (l *waitingLine) waiting(_ context.Context, e lease.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.queued = e.Err, e.Err == nil
	if l.quiet || !l.began.IsZero() || l.ctx.Err() != nil { // end may be waiting already
		return
	}
	l.began = time.Now()
	l.work.Go(l.draw)
}

// notQueued returns why the attempt is in no queue, or nil if it is in one.
func (l *waitingLine) notQueued() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.queued:
		return nil
	case l.err != nil:
		return l.err
	}
	return wire.ErrUnreachable
}

// end removes the line.
func (l *waitingLine) end() {
	l.mu.Lock()
	l.cancel() // nothing starts from now on
	l.mu.Unlock()
	l.work.Wait()
}

// draw inspects the lock and prints the line every second: on a terminal again and again, otherwise once, as soon
// as the reason is known.
func (l *waitingLine) draw() {
	var status lease.Status
	live, remove := term.IsTerminal(int(l.out.Fd())), "\r\x1b[K"
	for pause := 250 * time.Millisecond; engine.Sleep(l.ctx, pause) == nil; pause = drawInterval {
		l.mu.Lock()
		inspect := l.inspect
		if l.err != nil { // it is the reason
			inspect = nil
		}
		l.mu.Unlock()
		if inspect != nil {
			limited, cancel := context.WithTimeout(l.ctx, connectTimeout)
			if fresh, err := inspect(limited, l.resource); err == nil {
				status = fresh
			}
			cancel()
			if l.ctx.Err() != nil {
				break
			}
		}
		text, known := l.text(status, time.Now())
		switch {
		case live: // not cut to the width of the terminal: each part says why the command waits
			fmt.Fprint(l.out, remove, text)
			remove = erase(text, terminal.WidthOf(l.out))
		case known:
			fmt.Fprintf(l.out, "leased: %s\n", text)
			return // one line is enough
		}
	}
	if live {
		fmt.Fprint(l.out, remove)
	}
}

// erase returns the sequences that remove a text from a terminal, also if it takes several lines there.
func erase(text string, width int) string {
	return "\r" + strings.Repeat("\x1b[A", max(0, terminal.Width(text)-1)/max(1, width)) + "\x1b[J"
}

// text returns the line, and whether it gives a reason.
func (l *waitingLine) text(status lease.Status, now time.Time) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := fmt.Sprintf("waiting for %q", string(l.resource))
	if waited := now.Sub(l.began).Round(time.Second); waited > 0 {
		text += " for " + waited.String()
	}
	if l.err != nil {
		return fmt.Sprintf("%s: %s; retrying", text, oneLine(l.err.Error())), true
	}
	switch n := len(status.Holders); {
	case n > 0:
		h := status.Holders[0]
		text += ": held by " + partyText(h.Holder, h.User)
		if h.Token != fencing.None { // another user's token may be hidden
			text += fmt.Sprintf(" with token %d", h.Token)
		}
		if !h.Since.IsZero() {
			text += " since " + h.Since.UTC().Format(time.DateTime) + " UTC"
		}
		if n > 1 {
			text += fmt.Sprintf(", and %d more", n-1)
		}
	case status.Delayed:
		text += ": in its lock-delay"
	}
	for i, w := range status.Waiters {
		if w.Holder == l.holder {
			return fmt.Sprintf("%s; number %d of %d in the queue", text, i+1, len(status.Waiters)), true
		}
	}
	return text, len(status.Holders) > 0
}

// partyText names a holder or waiter: what the client calls itself, and the user. A database checks neither.
func partyText(holder, user string) string {
	text := cmp.Or(holder, "an unnamed holder")
	if user != "" {
		text += " (user " + user + ")"
	}
	return terminal.Clean(text)
}

// defaultHolder returns the default holder name, HOST:PID.
func defaultHolder() string {
	host, _ := os.Hostname() // without a host name the process id is enough
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

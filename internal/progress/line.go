package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	// drawInterval is the shortest time between two drawings on a terminal.
	drawInterval = 200 * time.Millisecond
	// plainInterval is the time between two lines on other outputs.
	plainInterval = 10 * time.Second
	// firstWait is how long work may take on a terminal before it is shown.
	firstWait = 500 * time.Millisecond
)

// Line shows the progress of one piece of work: on a terminal as one line that it keeps
// up to date, otherwise as a line every ten seconds. A nil Line shows nothing. All methods
// may be called concurrently.
type Line struct {
	out  io.Writer
	live bool
	now  func() time.Time
	// width returns the number of columns of the terminal.
	width func() int

	mu    sync.Mutex
	start time.Time
	last  time.Time // when a line was last written
	stage string
	drawn bool
	ended bool
}

// New returns a line on a file, by a clock such as time.Now.
func New(out *os.File, now func() time.Time) *Line {
	l := newLine(out, term.IsTerminal(int(out.Fd())), now)
	l.width = func() int { return widthOf(out) }
	return l
}

func newLine(out io.Writer, live bool, now func() time.Time) *Line {
	start := now()
	return &Line{out: out, live: live, now: now, width: func() int { return defaultWidth }, start: start, last: start}
}

// Elapsed returns the time since the line was created.
func (l *Line) Elapsed() time.Duration {
	if l == nil {
		return 0
	}
	return l.now().Sub(l.start)
}

// Show shows how far the work has come, if it is time for that. The text changes all the
// time: it contains amounts, rates and times.
func (l *Line) Show(text string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	wait := plainInterval
	switch {
	case l.live && l.drawn:
		wait = drawInterval
	case l.live:
		wait = firstWait
	}
	if l.ended || now.Sub(l.last) < wait {
		return
	}
	l.write(text, now)
}

// Stage shows a step of the work at once when it begins, and from then on as Show does.
// stage names the step, and detail is what changes within it.
func (l *Line) Stage(stage, detail string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	begins := stage != l.stage && !l.ended
	if begins {
		l.stage = stage
		l.write(stage+detail, l.now())
	}
	l.mu.Unlock()
	if !begins {
		l.Show(stage + detail)
	}
}

// write writes a line. The caller holds mu.
func (l *Line) write(text string, now time.Time) {
	l.last, l.drawn = now, true
	if l.live {
		fmt.Fprintf(l.out, "\r\x1b[K%s", fit(text, l.width()-1)) // a longer text would leave lines behind
	} else {
		fmt.Fprintln(l.out, text)
	}
}

// End removes the line from a terminal. Nothing is shown afterwards.
func (l *Line) End() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live && l.drawn && !l.ended {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
	l.ended = true
}

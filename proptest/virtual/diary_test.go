package virtual

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// diary keeps the last lines that the nodes of a cluster have logged: a failure
// may not come again, so it has to tell all that is known.
type diary struct {
	mu    sync.Mutex
	lines [400]string
	next  int
}

// Write is for a handler of slog, which writes one line at a time.
func (d *diary) Write(line []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines[d.next%len(d.lines)] = string(line)
	d.next++
	return len(line), nil
}

// logger writes into the diary, with the time of the bubble.
func (d *diary) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(d, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// tail is what it has, the oldest line first.
func (d *diary) tail() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all strings.Builder
	for i := range d.lines {
		all.WriteString(d.lines[(d.next+i)%len(d.lines)])
	}
	return all.String()
}

// state is all that the nodes say of themselves.
func (c *cluster) state() string {
	var all strings.Builder
	for _, n := range c.nodes() {
		fmt.Fprintf(&all, "%+v\n", n.Status())
	}
	return all.String() + c.diary.tail()
}

package virtual

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// logBuffer keeps the last log lines of the nodes. A failure may not be reproducible, so
// its report includes them.
type logBuffer struct {
	mu    sync.Mutex
	lines [400]string
	next  int
}

// Write takes one line of a slog handler.
func (d *logBuffer) Write(line []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines[d.next%len(d.lines)] = string(line)
	d.next++
	return len(line), nil
}

// logger returns a logger that writes to the buffer.
func (d *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(d, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// tail returns the lines, the oldest first.
func (d *logBuffer) tail() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all strings.Builder
	for i := range d.lines {
		all.WriteString(d.lines[(d.next+i)%len(d.lines)])
	}
	return all.String()
}

// state returns the status and the last log lines of the nodes.
func (c *cluster) state() string {
	var all strings.Builder
	for _, n := range c.nodes() {
		fmt.Fprintf(&all, "%+v\n", n.Status())
	}
	return all.String() + c.logBuffer.tail()
}

//go:build linux

package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/proptest/promise"
)

// closeAfter is how long a history stays open after its locks were left: an
// operation of a worker that was killed may still take effect.
const closeAfter = 4 * time.Second

// court collects what happened, and judges each history when it has ended.
type court struct {
	world *world

	mu      sync.Mutex
	open    map[string]*history
	closed  map[string]int64                             // the last row of the storage's log that was judged
	faults  []promise.Event                              // and what else happened to everybody, in order
	at      map[string]string                            // the history that a worker is at
	holds   map[string]map[promise.Attempt]promise.Event // leases that a worker was told of
	kinds   map[string]int
	live    figures
	result  Result
	cluster *promise.Judge
	waiting sync.WaitGroup // for histories that are being judged
	failed  error
}

// figures are what is counted on the way, for the progress: the same as the judge
// counts in the end.
type figures struct {
	operations, stale int
	grants            map[string]int // by mode
}

func newCourt(w *world) *court {
	c := &court{world: w, open: map[string]*history{}, closed: map[string]int64{}, at: map[string]string{}, kinds: map[string]int{},
		holds: map[string]map[promise.Attempt]promise.Event{}, live: figures{grants: map[string]int{}}, cluster: promise.NewJudge("cluster")}
	c.result.Modes = map[string]Figures{}
	return c
}

// read takes what a worker prints.
func (c *court) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // a line that was cut off by a kill tells of nothing that was done
		}
		var e promise.Event
		if err := json.Unmarshal(line, &e); err != nil {
			c.fail(fmt.Errorf("understand a worker: %w: %s", err, line))
			continue
		}
		c.take(e)
	}
}

// take takes an event of a worker.
func (c *court) take(e promise.Event) {
	e.At -= c.world.began
	c.mu.Lock()
	defer c.mu.Unlock()
	name := historyOf(e.Resource)
	h := c.open[name]
	if h == nil {
		if _, late := c.closed[name]; late {
			c.result.Violations = append(c.result.Violations, fmt.Sprintf("%s: told after its history was judged (%s)", promise.Tellable, e))
			return
		}
		h = newHistory(name)
		c.open[name] = h
	}
	c.add(h, e)
	switch e.Kind {
	case promise.Asked:
		c.at[e.Who] = name
	case promise.Told:
		if c.holds[e.Who] == nil {
			c.holds[e.Who] = map[promise.Attempt]promise.Event{}
		}
		c.holds[e.Who][e.Attempt] = e
	case promise.Ended:
		delete(c.holds[e.Who], e.Attempt)
	}
}

// add puts an event of a worker into a history, and counts it.
func (c *court) add(h *history, e promise.Event) {
	h.events = append(h.events, e)
	switch {
	case e.Kind == promise.Asked, e.Kind == promise.Ended, e.Kind == promise.Sent && e.Note == "":
		c.live.operations++
	case e.Kind == promise.Told:
		c.live.grants[h.mode]++
	case e.Kind == promise.Rejected && e.Note != noteRead:
		c.live.stale++
	}
}

// happened takes what was done to the world. A worker that was killed works
// under no lease any more, though it cannot say so.
func (c *court) happened(e promise.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, e)
	if e.Kind == promise.Fault || e.Kind == promise.Paused {
		c.kinds[e.Note]++
	}
	if e.Kind != promise.Fault || c.holds[e.Who] == nil {
		return
	}
	for _, lease := range c.holds[e.Who] {
		lease.Kind, lease.At = promise.Ended, e.At
		if h := c.open[historyOf(lease.Resource)]; h != nil {
			c.add(h, lease)
		}
	}
	clear(c.holds[e.Who])
}

// holding reports whether a worker holds a lock, as far as it has told.
func (c *court) holding(who string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.holds[who]) > 0
}

func (c *court) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}

func (c *court) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// closeOld judges the histories whose locks everybody has left.
func (c *court) closeOld(ctx context.Context) {
	now := c.world.now()
	c.mu.Lock()
	var old []*history
	for name, h := range c.open {
		left := max(time.Duration(h.generation+1)*generationTime, h.events[len(h.events)-1].At)
		if h.generation < 0 || now < left+closeAfter || slices.Contains(slices.Collect(maps.Values(c.at)), name) {
			continue
		}
		old = append(old, h)
	}
	c.mu.Unlock()
	for _, h := range old {
		c.close(ctx, h)
	}
}

// close judges a history while the run goes on. If ctx ends it stays open.
func (c *court) close(ctx context.Context, h *history) {
	var rows, found []promise.Event
	var last int64
	err := ask(ctx, func() (err error) {
		if rows, last, err = c.world.database.log(ctx, h.name+"/", 0, c.world.began+wallOffset()); err != nil {
			return err
		}
		found, err = c.world.database.found(ctx, h.name+"/")
		return err
	})
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		c.fail(err)
		return
	}
	c.mu.Lock()
	delete(c.open, h.name)
	c.closed[h.name] = last
	for i := range found {
		found[i].At = c.world.now()
	}
	h.rows, h.found, h.faults = rows, found, h.during(c.faults)
	c.mu.Unlock()
	c.waiting.Go(func() {
		verdict := h.judge()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.result.add(h, verdict)
	})
}

// closeAll judges what is left, and looks for what came too late to be judged.
func (c *court) closeAll(ctx context.Context) {
	c.mu.Lock()
	rest := slices.Collect(maps.Values(c.open))
	c.mu.Unlock()
	for _, h := range rest {
		c.close(ctx, h)
	}
	c.waiting.Wait()
	for name, last := range c.closed {
		var late []promise.Event
		err := ask(ctx, func() (err error) { late, _, err = c.world.database.log(ctx, name+"/", last, 0); return err })
		if err != nil {
			c.fail(err)
			return
		}
		for _, e := range late {
			c.result.Violations = append(c.result.Violations, fmt.Sprintf("%s: applied after its history was judged (%s)", promise.Tellable, e))
		}
	}
}

// progress is a line for people.
func (c *court) progress() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(c.kinds)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, c.kinds[kind]))
	}
	return fmt.Sprintf("%5.0fs  %d operations  grants %d correctness %d efficiency  stale %d  violations %d  %s", c.world.now().Seconds(), c.live.operations,
		c.live.grants[correctness], c.live.grants[efficiency], c.live.stale, len(c.result.Violations), strings.Join(kinds, ", "))
}

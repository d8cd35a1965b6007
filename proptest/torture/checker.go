//go:build linux

package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/internal/progress"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

// closeAfter is the time for which a history stays open after the last use of its locks:
// an operation of a killed worker may still take effect.
const closeAfter = 4 * time.Second

// checker collects histories, and checks each when it has ended.
type checker struct {
	world *world

	mu       sync.Mutex
	open     map[string]*history
	closed   map[string]int64                               // the last checked row of the storage's log
	faults   []property.Event                               // faults and repairs, in order
	at       map[string]string                              // the history of a worker's last attempt
	holds    map[string]map[property.Attempt]property.Event // leases of a worker
	kinds    map[string]int
	live     figures
	grants   grants
	migrator *migrator
	result   Result
	cluster  *property.Checker
	waiting  sync.WaitGroup // for histories that are being checked
	failed   error
}

// figures are counted for the progress. They equal the final figures of the property
// checker.
type figures struct {
	operations, stale int
	grants            map[string]int // by class
}

func newChecker(w *world) *checker {
	c := &checker{world: w, open: map[string]*history{}, closed: map[string]int64{}, at: map[string]string{},
		kinds: map[string]int{},
		holds: map[string]map[property.Attempt]property.Event{}, live: figures{grants: map[string]int{}},
		cluster: property.NewChecker("cluster")}
	c.result.Modes, c.result.Switches.Grants, c.result.Acknowledged = map[string]Figures{}, map[string]int{},
		map[string]int{}
	c.migrator = &migrator{checker: c, random: rand.New(rand.NewPCG(w.config.Seed, 1<<32)), mode: engine.Correctness}
	return c
}

// read reads the events that a worker prints.
func (c *checker) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // truncated by a kill, before the operation began
		}
		var e property.Event
		if err := json.Unmarshal(line, &e); err != nil {
			c.fail(fmt.Errorf("read the events of a worker: %w: %s", err, line))
			continue
		}
		c.take(e)
	}
}

// take takes an event of a worker.
func (c *checker) take(e property.Event) {
	e.At -= c.world.began
	c.mu.Lock()
	defer c.mu.Unlock()
	name := historyOf(e.Resource)
	h := c.open[name]
	if h == nil {
		if _, late := c.closed[name]; late {
			c.result.Violations = append(c.result.Violations, fmt.Sprintf("%s: reported after its history was checked (%s)",
				property.WellFormed, e))
			return
		}
		h = newHistory(name)
		c.open[name] = h
	}
	c.add(h, e)
	switch e.Kind {
	case property.Requested:
		c.at[e.Who] = name
	case property.Acquired:
		if e.Note == engine.Efficiency.String() {
			c.grants.see(e)
		}
		if c.holds[e.Who] == nil {
			c.holds[e.Who] = map[property.Attempt]property.Event{}
		}
		c.holds[e.Who][e.Attempt] = e
	case property.Ended:
		delete(c.holds[e.Who], e.Attempt)
	case property.Acknowledged:
		if e.Access == property.Write {
			c.result.Acknowledged[e.Who]++
		}
	}
}

// add adds an event of a worker to a history and counts it.
func (c *checker) add(h *history, e property.Event) {
	h.events = append(h.events, e)
	switch {
	case e.Kind == property.Requested, e.Kind == property.Ended, e.Kind == property.Sent && e.Access == property.Write:
		c.live.operations++
	case e.Kind == property.Acquired:
		c.live.grants[h.class]++
	case e.Kind == property.Rejected && e.Access != property.Read:
		c.live.stale++
	}
}

// happened takes a fault or a repair. A killed worker holds no leases and cannot report
// their end.
func (c *checker) happened(e property.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, e)
	if e.Kind == property.Fault || e.Kind == property.Paused {
		c.kinds[e.Note]++
	}
	if e.Kind != property.Fault || c.holds[e.Who] == nil {
		return
	}
	for _, lease := range c.holds[e.Who] {
		lease.Kind, lease.At = property.Ended, e.At
		if h := c.open[historyOf(lease.Resource)]; h != nil {
			c.add(h, lease)
		}
	}
	clear(c.holds[e.Who])
}

// holding reports whether a worker holds a lock, according to its events.
func (c *checker) holding(who string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.holds[who]) > 0
}

// violate adds a violation.
func (c *checker) violate(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result.Violations = append(c.result.Violations, what)
}

func (c *checker) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}

func (c *checker) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// closeOld checks the histories whose locks no worker uses any more.
func (c *checker) closeOld(ctx context.Context) {
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

// close checks a history during the run. It stays open if ctx ends.
func (c *checker) close(ctx context.Context, h *history) {
	var rows, found []property.Event
	var last int64
	err := retry(ctx, startLimit, func() (err error) {
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
		outcome := h.check()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.result.add(h, outcome)
	})
}

// closeAll checks the open histories, and reports writes that came too late to be checked.
func (c *checker) closeAll(ctx context.Context) {
	c.mu.Lock()
	rest := slices.Collect(maps.Values(c.open))
	c.mu.Unlock()
	for _, h := range rest {
		c.close(ctx, h)
	}
	c.waiting.Wait()
	for name, last := range c.closed {
		var late []property.Event
		err := retry(ctx, startLimit, func() (err error) {
			late, _, err = c.world.database.log(ctx, name+"/", last, 0)
			return err
		})
		if err != nil {
			c.fail(err)
			return
		}
		for _, e := range late {
			c.result.Violations = append(c.result.Violations, fmt.Sprintf("%s: applied after its history was checked (%s)",
				property.WellFormed, e))
		}
	}
}

// progress returns one line about the run.
func (c *checker) progress() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(c.kinds)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, c.kinds[kind]))
	}
	now := c.world.now()
	grants := fmt.Sprintf("%d correctness %d efficiency %d switched  switches %d", c.live.grants[correctness],
		c.live.grants[efficiency], c.live.grants[switched],
		c.migrator.figures().Done)
	if c.world.locks != nil {
		grants = fmt.Sprint(c.live.grants[inPostgres])
	}
	return fmt.Sprintf("%5.0fs  %s  %d operations  grants %s  stale %d  violations %d  %s", now.Seconds(),
		progress.Until(c.world.config.Duration, now),
		c.live.operations, grants, c.live.stale, len(c.result.Violations), strings.Join(kinds, ", "))
}

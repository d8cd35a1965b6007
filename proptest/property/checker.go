package property

import (
	"fmt"
	"sync"

	"github.com/leased-project/leased/fencing"
)

// Checker checks the events of one history in the order in which they happened,
// and reports the first property that each event violates. It is safe for
// concurrent use. Concurrent callers must report the start of an operation before
// they send it, and its end after they received the answer.
type Checker struct {
	// Log says that the history has the events of the service's log. Every grant
	// that a client receives must then be in the log, which has one holder at a time.
	Log bool

	mu       sync.Mutex
	locks    map[fencing.Resource]*lock
	attempts map[Attempt]*attempt
	ops      map[uint64]*operation
	hashes   map[uint64]uint64 // by index
	highest  uint64            // index in hashes
	faults   int
	pending  bool // healed, and no lock was granted since
	restores int  // of the log
	report   Report
}

// lock is the state of one resource.
type lock struct {
	owners  map[fencing.Token]Attempt // the attempt that acquired each token
	largest fencing.Token             // the largest token that a client acquired
	faults  int                       // faults injected before that
	holder  Attempt                   // in the log
	logged  fencing.Token             // the last token granted in the log
	active  map[Attempt]bool          // attempts whose clients work under a lease

	mark    fencing.Token // of the gate
	version uint64        // of the data
	acked   uint64        // the last version that was acknowledged to a client
}

// attempt is the state of one attempt.
type attempt struct {
	resource fencing.Resource
	above    fencing.Token // lock.largest when the attempt was requested
	faults   int           // lock.faults at that time
	token    fencing.Token
	logged   fencing.Token
	restores int // Checker.restores when logged was granted
}

// operation is the state of one operation at the gate.
type operation struct {
	applied, refused bool
	version          uint64
}

// NewChecker returns a Checker for an empty history.
func NewChecker(setting string) *Checker {
	return &Checker{locks: map[fencing.Resource]*lock{}, attempts: map[Attempt]*attempt{}, ops: map[uint64]*operation{},
		hashes: map[uint64]uint64{},
		report: Report{Setting: setting, Runs: 1, Faults: map[string]int{}, Checks: map[Name]int{}}}
}

// Observe checks the next event. A returned error is a *Violation. The checker
// continues after a violation, so that a run reports all of them.
func (c *Checker) Observe(e Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Time = max(c.report.Time, e.At)
	v := c.observe(e)
	if v == nil {
		return nil
	}
	v.Event = e
	c.report.Violations = append(c.report.Violations, v.Error())
	return v
}

// Report returns the figures so far. With finished, the history is complete, and
// missing progress after Healed is a violation.
func (c *Checker) Report(finished bool) Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	if finished && c.pending {
		v := &Violation{Property: Progress, Detail: "no lock was granted until the end", Event: Event{Kind: Healed}}
		c.report.Violations = append(c.report.Violations, v.Error())
		c.pending = false
	}
	var r Report
	r.Add(c.report)
	r.Setting = c.report.Setting
	return r
}

func violated(p Name, format string, args ...any) *Violation {
	return &Violation{Property: p, Detail: fmt.Sprintf(format, args...)}
}

func (c *Checker) lock(name fencing.Resource) *lock {
	l := c.locks[name]
	if l == nil {
		l = &lock{owners: map[fencing.Token]Attempt{}, active: map[Attempt]bool{}}
		c.locks[name] = l
	}
	return l
}

func (c *Checker) observe(e Event) *Violation {
	switch e.Kind {
	case Requested, Acquired, Denied, Ended:
		return c.observeClient(e)
	case Sent, Acknowledged, Rejected:
		return c.observeHolder(e)
	case Entered, Wrote, Stale, Found:
		return c.observeStorage(e)
	case Granted, Freed:
		return c.observeLog(e)
	case Applied:
		return c.observeReplica(e)
	case Fault, Paused:
		name := e.Note
		if name == "" {
			name = e.Kind.String()
		}
		c.report.Faults[name]++
		c.faults++
	case Healed:
		c.pending = true
	case Served:
		c.report.Checks[Progress]++
		c.pending = false
	case Resumed:
	case Restored:
		c.restores++
		for _, l := range c.locks {
			l.holder = ""
		}
	default:
		return violated(WellFormed, "unknown event kind %d", e.Kind)
	}
	return nil
}

// count notes that a property was checked once.
func (c *Checker) count(p Name) { c.report.Checks[p]++ }

package promise

import (
	"fmt"
	"sync"

	"github.com/leased-project/leased/fencing"
)

// Judge takes the events of one history, in the order in which they happened,
// and reports the first promise that each of them breaks. It is safe for
// concurrent use: where several tell it things at one time, an event that
// begins something must be told before it is sent, and one that ends something
// after it was heard.
type Judge struct {
	// Log says that the service tells its log: then a client may be told only
	// of grants that are in it, and there is one holder at a time.
	Log bool

	mu       sync.Mutex
	locks    map[fencing.Resource]*lock
	attempts map[Attempt]*attempt
	ops      map[uint64]*operation
	hashes   map[uint64]uint64 // by index
	highest  uint64            // index in hashes
	faults   int
	waiting  bool // healed, and nobody served since
	era      int  // how often the log was restored
	report   Report
}

// lock is what the judge knows of one resource.
type lock struct {
	owners  map[fencing.Token]Attempt // who was told of each token
	largest fencing.Token             // that anyone was told of
	told    int                       // faults, when that was
	holder  Attempt                   // by the log
	logged  fencing.Token
	believe map[Attempt]bool // clients that work under a lease now

	mark    fencing.Token // of the gate
	version uint64        // of the data
	acked   uint64        // the last version that a client was told of
}

// attempt is what the judge knows of one attempt.
type attempt struct {
	resource fencing.Resource
	above    fencing.Token // the largest token told for the lock when it was asked
	faults   int           // when that token was told
	token    fencing.Token
	logged   fencing.Token
	era      int // in which that was
}

// operation is one use of the gate.
type operation struct {
	applied, refused bool
	version          uint64
}

// NewJudge returns a Judge that has seen nothing.
func NewJudge(setting string) *Judge {
	return &Judge{locks: map[fencing.Resource]*lock{}, attempts: map[Attempt]*attempt{}, ops: map[uint64]*operation{},
		hashes: map[uint64]uint64{},
		report: Report{Setting: setting, Runs: 1, Faults: map[string]int{}, Checks: map[Promise]int{}}}
}

// See takes the next event. The error is a *Violation. The judge goes on after
// one, so that a run can tell all of them.
func (j *Judge) See(e Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.report.Time = max(j.report.Time, e.At)
	v := j.see(e)
	if v == nil {
		return nil
	}
	v.Event = e
	j.report.Violations = append(j.report.Violations, v.Error())
	return v
}

// Report tells the figures so far. At the end of a history, finished is true:
// then what is owed and not done is a violation too.
func (j *Judge) Report(finished bool) Report {
	j.mu.Lock()
	defer j.mu.Unlock()
	if finished && j.waiting {
		v := &Violation{Promise: Progress, Detail: "nobody was granted anything until the end", Event: Event{Kind: Healed}}
		j.report.Violations = append(j.report.Violations, v.Error())
		j.waiting = false
	}
	var r Report
	r.Add(j.report)
	r.Setting = j.report.Setting
	return r
}

func broken(p Promise, format string, args ...any) *Violation {
	return &Violation{Promise: p, Detail: fmt.Sprintf(format, args...)}
}

func (j *Judge) lock(name fencing.Resource) *lock {
	l := j.locks[name]
	if l == nil {
		l = &lock{owners: map[fencing.Token]Attempt{}, believe: map[Attempt]bool{}}
		j.locks[name] = l
	}
	return l
}

func (j *Judge) see(e Event) *Violation {
	switch e.Kind {
	case Asked, Told, Refused, Ended:
		return j.client(e)
	case Sent, Acknowledged, Rejected:
		return j.user(e)
	case Entered, Wrote, Stale, Found:
		return j.storage(e)
	case Granted, Freed:
		return j.service(e)
	case Applied:
		return j.replica(e)
	case Fault, Paused:
		name := e.Note
		if name == "" {
			name = e.Kind.String()
		}
		j.report.Faults[name]++
		j.faults++
	case Healed:
		j.waiting = true
	case Served:
		j.report.Checks[Progress]++
		j.waiting = false
	case Resumed:
	case Restored:
		j.era++
		for _, l := range j.locks {
			l.holder = ""
		}
	default:
		return broken(Tellable, "unknown kind")
	}
	return nil
}

// checked counts that a promise was looked at.
func (j *Judge) checked(p Promise) { j.report.Checks[p]++ }

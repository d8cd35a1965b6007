package virtual

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/linear"
	"github.com/leased-project/leased/proptest/property"
)

// sampled is how many operations of a history go to the second opinion, and
// recent how many events are shown when a promise is broken.
const (
	sampled = 400
	recent  = 60
)

// story is one history: it tells the judge, and remembers enough to tell people.
type story struct {
	checker *property.Checker
	began   time.Time

	mu      sync.Mutex
	events  []property.Event // the last ones
	failure []string         // the first violation, with what came before it
	ops     []linear.Op
	lastOp  uint64
	newest  map[fencing.Resource]fencing.Token // that anyone was told of; nil after a restore
	// exclusive: nobody may work beside another. That is promised only to those
	// who are not paused, and whose clocks run with the service's.
	exclusive bool
	working   map[fencing.Resource]map[fencing.Token]bool
}

func newStory(setting string) *story {
	return &story{checker: property.NewChecker(setting), began: time.Now(), newest: map[fencing.Resource]fencing.Token{},
		working: map[fencing.Resource]map[fencing.Token]bool{}}
}

func (s *story) now() time.Duration { return time.Since(s.began) }

// tell hands an event to the judge. Events of one party are told in their order
// because it tells them one after the other.
func (s *story) tell(e property.Event) {
	e.At = s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.checker.Observe(e)
	if len(s.events) == recent {
		s.events = slices.Delete(s.events, 0, 1)
	}
	s.events = append(s.events, e)
	if err != nil {
		s.fail(err.Error())
	}
	if e.Kind == property.Acquired && s.newest != nil {
		s.newest[e.Resource] = max(s.newest[e.Resource], e.Token)
	}
}

// begins notes that someone begins to work under a lease. The judge counts
// grants on their way to a client too, which may come too late to be used.
func (s *story) begins(name fencing.Resource, token fencing.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exclusive && len(s.working[name]) > 0 {
		s.fail(fmt.Sprintf("%s: work under %s begins with token %d beside %v", s.now(), name, token, s.working[name]))
	}
	if s.working[name] == nil {
		s.working[name] = map[fencing.Token]bool{}
	}
	s.working[name][token] = true
}

// ends is the other end of begins.
func (s *story) ends(name fencing.Resource, token fencing.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.working[name], token)
}

// largest is the largest token that anyone was told of.
func (s *story) largest(name fencing.Resource) fencing.Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest[name]
}

// forget: from here on older grants may be shown again, since the service was
// put back to an earlier state, and newer ones are still on their way.
func (s *story) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = nil
}

// fail keeps the first violation with the events before it. The caller holds mu.
func (s *story) fail(text string) {
	if s.failure == nil {
		for _, e := range s.events {
			s.failure = append(s.failure, e.String())
		}
	}
	s.failure = append(s.failure, "BROKEN "+text)
}

// broken tells of a promise that is not the judge's.
func (s *story) broken(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(fmt.Sprintf("%s: ", s.now()) + fmt.Sprintf(format, args...))
}

// fault tells of one thing that was broken on purpose.
func (s *story) fault(kind, who string) {
	s.tell(property.Event{Kind: property.Fault, Who: who, Note: kind})
}

// count tells of a fault if it changed something, as in the simulator: one that
// does nothing, or only makes another one longer, is done and not counted.
func (s *story) count(f fault, who string, changed bool) {
	if changed {
		s.fault(f.kind, who)
	}
}

// nextOp is the number of one more operation at the gate.
func (s *story) nextOp() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastOp++
	return s.lastOp
}

// saw keeps an operation for the second opinion. The first ones are kept: a
// history with holes would explain nothing.
func (s *story) saw(op linear.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, op)
}

// sample is the beginning of the history as clients saw it, complete up to a
// moment: what was under way then stays open.
func (s *story) sample() []linear.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	ops := slices.Clone(s.ops)
	slices.SortFunc(ops, func(a, b linear.Op) int { return int(a.Call - b.Call) })
	if len(ops) <= sampled {
		return ops
	}
	end := ops[sampled].Call
	ops = ops[:sampled]
	for i := range ops {
		if ops[i].Return >= end {
			ops[i].Outcome = linear.Unknown
		}
	}
	return ops
}

// secondOpinion asks the checker that knows nothing of us. It runs outside the
// bubble: it needs real time to give up.
func (s *story) secondOpinion() error {
	var page bytes.Buffer
	err := linear.Check(s.sample(), 5*time.Second, &page)
	if err == linear.ErrTimeout {
		return nil // it says nothing
	}
	return err
}

// verdict is the report, and what went wrong, empty if nothing did.
func (s *story) verdict() (property.Report, string) {
	report := s.checker.Report(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range report.Violations {
		if s.failure == nil {
			s.fail(v)
		}
	}
	for _, line := range s.failure {
		if strings.HasPrefix(line, "BROKEN") && len(report.Violations) == 0 {
			report.Violations = append(report.Violations, line)
		}
	}
	return report, strings.Join(s.failure, "\n")
}

package virtual

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// sampled is the number of operations on each lock that are checked for linearizability, recent the
// number of events that a failure shows.
const (
	sampled = 200
	recent  = 60
)

// history passes events to the property checker, and keeps the last ones for a failure.
type history struct {
	checker *property.Checker
	began   time.Time

	mu      sync.Mutex
	events  []property.Event // the last ones
	failure []string         // the first violation, with the events before it
	ops     []property.Op
	lastOp  uint64
	newest  map[fencing.Resource]fencing.Token // acquired by a client; nil after a restore
	// exclusive makes overlapping work a failure. That holds only for clients that are
	// not paused and have sound clocks.
	exclusive bool
	working   map[fencing.Resource]map[fencing.Token]bool
}

func newHistory(setting string) *history {
	return &history{checker: property.NewChecker(setting), began: time.Now(), newest: map[fencing.Resource]fencing.Token{},
		working: map[fencing.Resource]map[fencing.Token]bool{}}
}

func (s *history) now() time.Duration { return time.Since(s.began) }

// record records an event and checks it. Each process records its events in order.
func (s *history) record(e property.Event) {
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

// begins records the start of work under a lease. The property checker also counts grants
// that arrive too late to be used.
func (s *history) begins(name fencing.Resource, token fencing.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exclusive && len(s.working[name]) > 0 {
		s.fail(fmt.Sprintf("%s: work on %s starts with token %d while others work: %v", s.now(), name, token,
			s.working[name]))
	}
	if s.working[name] == nil {
		s.working[name] = map[fencing.Token]bool{}
	}
	s.working[name][token] = true
}

// ends records the end of work under a lease.
func (s *history) ends(name fencing.Resource, token fencing.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.working[name], token)
}

// largest returns the largest token that a client acquired.
func (s *history) largest(name fencing.Resource) fencing.Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest[name]
}

// forget discards the newest tokens: after a restore, older grants may be visible again.
func (s *history) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = nil
}

// fail keeps the first violation with the events before it. The caller holds mu.
func (s *history) fail(text string) {
	if s.failure == nil {
		for _, e := range s.events {
			s.failure = append(s.failure, e.String())
		}
	}
	s.failure = append(s.failure, "VIOLATION "+text)
}

// broken records a violation that the property checker does not see.
func (s *history) broken(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(fmt.Sprintf("%s: ", s.now()) + fmt.Sprintf(format, args...))
}

// fault records an injected fault.
func (s *history) fault(kind, who string) {
	s.record(property.Event{Kind: property.Fault, Who: who, Note: kind})
}

// count records a fault if it had an effect, as in the simulator: a fault without effect,
// or one that only prolongs another, is not counted.
func (s *history) count(f fault, who string, changed bool) {
	if changed {
		s.fault(f.kind, who)
	}
}

// nextOp returns the number of a new operation at the gate.
func (s *history) nextOp() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastOp++
	return s.lastOp
}

// saw keeps an operation for the linearizability check.
func (s *history) saw(op property.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, op)
}

// sample returns the first operations.
func (s *history) sample() []property.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	ops := slices.Clone(s.ops)
	slices.SortFunc(ops, func(a, b property.Op) int { return int(a.Call - b.Call) })
	return property.First(ops, sampled)
}

// checkLinearizability checks the sampled operations. It runs outside the bubble, since
// its timeout needs real time.
func (s *history) checkLinearizability() error {
	var page bytes.Buffer
	err := property.CheckLinearizable(s.sample(), 5*time.Second, &page)
	if err == property.ErrTimeout {
		return nil // undecided
	}
	return err
}

// result returns the report, and the failure or "".
func (s *history) result() (property.Report, string) {
	report := s.checker.Report(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range report.Violations {
		if s.failure == nil {
			s.fail(v)
		}
	}
	for _, line := range s.failure {
		if strings.HasPrefix(line, "VIOLATION") && len(report.Violations) == 0 {
			report.Violations = append(report.Violations, line)
		}
	}
	return report, strings.Join(s.failure, "\n")
}

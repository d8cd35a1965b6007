package proposer

import "github.com/leased-project/leased/raftstore/machine"

const (
	// MaxOperations bounds the operations of one entry.
	MaxOperations = 4096
	// MaxBytes bounds the approximate size of one entry.
	MaxBytes = 1 << 20
)

// Operation is one command on its way to the log. C identifies the caller that
// waits for the result.
type Operation[C any] struct {
	// Command is nil for a barrier: an operation that only has to commit.
	Command machine.Command
	// Leadership numbers the leadership that accepted the operation; 0 for
	// operations that any leadership may propose, such as Lead.
	Leadership uint64
	Caller     C
}

// Batch is the operations of one entry, in order.
type Batch[C any] struct {
	Operations []Operation[C]
	// Commands are those of the operations that are not barriers. If sessions end or a
	// migration may begin, the last one is an EndRequests: the leases of small sessions end in
	// the same entry, and the entry ends a bounded number of requests however many sessions end.
	Commands []machine.Command
}

// Answer calls deliver for every operation with its result. results are those of
// Commands; a barrier gets Done.
func (b *Batch[C]) Answer(results []machine.Result, deliver func(caller C, result machine.Result)) {
	for i := range b.Operations {
		if b.Operations[i].Command == nil {
			deliver(b.Operations[i].Caller, machine.Result{Code: machine.Done})
			continue
		}
		deliver(b.Operations[i].Caller, results[0])
		results = results[1:]
	}
}

// Queue holds the operations that wait for the log. Its methods must not be
// called concurrently. The zero value is not usable.
type Queue[C any] struct {
	// EndRequests is the Max of the EndRequests that Next adds. Simulators change it.
	EndRequests int

	limit    int
	waiting  []Operation[C]
	inFlight bool
}

// NewQueue returns an empty queue for at most limit operations.
func NewQueue[C any](limit int) *Queue[C] {
	return &Queue[C]{limit: limit, EndRequests: machine.MaxEndRequests}
}

// Add appends an operation. It reports false if the queue is full; the operation
// then has no effect.
func (q *Queue[C]) Add(op Operation[C]) bool {
	if len(q.waiting) >= q.limit {
		return false
	}
	q.waiting = append(q.waiting, op)
	return true
}

// Len returns the number of operations that wait.
func (q *Queue[C]) Len() int { return len(q.waiting) }

// Drain removes and returns all operations that wait.
func (q *Queue[C]) Drain() []Operation[C] {
	waiting := q.waiting
	q.waiting = nil
	return waiting
}

// Next returns the operations of the next entry, and those that were accepted
// under another leadership than the current one (0: none). The latter are never
// proposed, because the state may have changed since their callers saw it; they
// have no effect. The batch is nil while an entry is in flight or nothing waits.
// After a batch, Next returns nil until Done.
func (q *Queue[C]) Next(leadership uint64) (batch *Batch[C], refused []Operation[C]) {
	if q.inFlight || len(q.waiting) == 0 {
		return nil, nil
	}
	taken := q.take()
	b := &Batch[C]{Operations: taken[:0], Commands: make([]machine.Command, 0, len(taken)+1)}
	var last []Operation[C] // an EndRequests follows everything that may end a session or a lease
	requestsEnd := false
	for _, op := range taken {
		if op.Leadership != 0 && op.Leadership != leadership {
			refused = append(refused, op)
			continue
		}
		switch op.Command.(type) {
		case *machine.EndRequests:
			last = append(last, op)
			continue
		case *machine.CloseSession, *machine.Expire, *machine.SetPolicy, *machine.DeletePolicy:
			requestsEnd = true
		}
		b.add(op)
	}
	for _, op := range last {
		b.add(op)
	}
	if len(b.Operations) == 0 {
		return nil, refused
	}
	if requestsEnd && len(last) == 0 {
		b.Commands = append(b.Commands, &machine.EndRequests{Max: q.EndRequests})
	}
	q.inFlight = true
	return b, refused
}

func (b *Batch[C]) add(op Operation[C]) {
	b.Operations = append(b.Operations, op)
	if op.Command != nil {
		b.Commands = append(b.Commands, op.Command)
	}
}

// Done ends the flight of the last batch: it was applied, it failed, or its
// outcome is uncertain.
func (q *Queue[C]) Done() { q.inFlight = false }

// take removes the operations of one entry from the queue, up to the limits.
func (q *Queue[C]) take() []Operation[C] {
	count, size := 0, 0
	for count < len(q.waiting) && count < MaxOperations && size < MaxBytes {
		size += Size(q.waiting[count].Command)
		count++
	}
	taken := q.waiting[:count:count]
	if q.waiting = q.waiting[count:]; len(q.waiting) == 0 {
		q.waiting = make([]Operation[C], 0, count) // the next batch is likely to be as large
	}
	return taken
}

// Size approximates the size of a command in the log.
func Size(c machine.Command) int {
	size := 48
	var metadata map[string]string
	switch c := c.(type) {
	case *machine.Acquire:
		size += len(c.Request.Holder)
		for _, name := range c.Request.Resources {
			size += len(name)
		}
		metadata = c.Request.Metadata
	case *machine.Update:
		metadata = c.Metadata
	case *machine.Break:
		size += len(c.Resource)
	case *machine.EndDelay:
		size += len(c.Resource)
	}
	for key, value := range metadata {
		size += len(key) + len(value)
	}
	return size
}

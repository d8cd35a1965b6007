package refusals

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/storagegate"
)

const (
	// maxQueue bounds the refusals that wait to be sent.
	maxQueue = 256
	// maxRecent bounds the reported refusals that a Reporter remembers.
	maxRecent = 1024
	// interval is the time for which equal refusals are not reported again: one report
	// for each lock, token, gate and reason is enough.
	interval = 10 * time.Second
	// The pause after a report bounds the load of one process on the service.
	pauseAfterReport  = 10 * time.Millisecond
	pauseAfterFailure = time.Second
	// callTimeout bounds one report, so that a service that does not answer does not
	// delay Flush.
	callTimeout = 10 * time.Second
	// logInterval is the time between two log lines about failures with the same code.
	logInterval = time.Hour
)

// Reporter sends refused writes to the service in the background, one at a time and in
// order. A gate never waits for it: if the service is slow or down, the Reporter drops
// refusals and counts them. All methods may be called concurrently. A Reporter has
// nothing to close: it stops with its client.
type Reporter struct {
	client *lease.Client
	logger *slog.Logger
	clock  engine.Clock

	mu      sync.Mutex
	counts  Counts
	queue   []lease.Refusal
	sending bool
	active  bool          // sending, or in the pause after it
	flushed chan struct{} // closed when the queue is sent; nil if nobody waits for it

	reported map[lease.Refusal]engine.Instant // when they were queued
	logged   map[string]engine.Instant        // by code
}

// Counts holds the number of refused writes that a Reporter has seen, by the result of
// the report.
type Counts struct {
	Sent     uint64 // the service has recorded it
	Repeated uint64 // not sent: an equal one was reported within the last seconds
	Dropped  uint64 // not sent: too many were waiting, or the client was closed
	Failed   uint64 // the service could not be reached, or refused it
}

// Option configures a Reporter.
type Option func(*Reporter)

// WithLogger sets the logger for failed reports. The Reporter logs each kind of failure
// at most once an hour. The default is slog.Default.
func WithLogger(logger *slog.Logger) Option {
	return func(r *Reporter) { r.logger = logger }
}

// New returns a Reporter that uses a client of the service. The user of the client needs
// the right to acquire the locks.
func New(client *lease.Client, options ...Option) *Reporter {
	r := &Reporter{client: client, logger: slog.Default(), clock: engine.SystemClock(),
		reported: map[lease.Refusal]engine.Instant{}, logged: map[string]engine.Instant{}}
	for _, option := range options {
		option(r)
	}
	return r
}

// Audit returns a hook for the Audit method of a gate, which does nothing for admitted
// writes. kind names the kind of the gate in the history of the lock. The metrics of the
// service have the kinds "sql", "pgx", "redis", "bolt", "file", "object", "memory",
// "http", "grpc", "connect" and "call", and count all others as "other".
func (r *Reporter) Audit(kind string) func(context.Context, storagegate.Decision) {
	return func(_ context.Context, d storagegate.Decision) {
		if d.Outcome != storagegate.Admitted {
			r.add(lease.Refusal{Resource: lockOf(d.Resource), Token: d.Token, Mark: d.Mark, Gate: kind,
				Reason: d.Outcome.String()})
		}
	}
}

// Counts returns the current counters.
func (r *Reporter) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Flush waits until no refusal is waiting or being sent, or until ctx ends. Call it
// before the client's Close, which drops what was not sent.
func (r *Reporter) Flush(ctx context.Context) error {
	r.mu.Lock()
	if len(r.queue) == 0 && !r.sending {
		r.mu.Unlock()
		return nil
	}
	if r.flushed == nil {
		r.flushed = make(chan struct{})
	}
	flushed := r.flushed
	r.mu.Unlock()
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lockOf returns the lock of a resource: holders of permits fence their writes under the
// name of their slot, which fencing.Resource.Slot derives from the name of the lock.
func lockOf(resource fencing.Resource) fencing.Resource {
	i := strings.LastIndex(string(resource), "#")
	if slot := resource[i+1:]; i <= 0 || slot == "" || strings.Trim(string(slot), "0123456789") != "" {
		return resource
	}
	return resource[:i]
}

// add queues a refusal, unless it is a repetition or the queue is full.
func (r *Reporter) add(refusal lease.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := refusal
	key.Mark = fencing.None // rises while a stale holder goes on writing
	now := r.clock.Now()
	switch at, known := r.reported[key]; {
	case known && now.Since(at) < interval:
		r.counts.Repeated++
		return
	case len(r.queue) >= maxQueue:
		r.counts.Dropped++
		return
	}
	if len(r.reported) >= maxRecent {
		clear(r.reported)
	}
	r.reported[key] = now
	r.queue = append(r.queue, refusal)
	if !r.active {
		r.active = true
		go r.sendNext()
	}
}

// sendNext sends the first refusal of the queue. After a pause it sends the next one.
func (r *Reporter) sendNext() {
	r.mu.Lock()
	if len(r.queue) == 0 {
		r.active = false
		r.mu.Unlock()
		return
	}
	refusal := r.queue[0]
	r.queue, r.sending = r.queue[1:], true
	r.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	err := r.client.ReportRefusal(ctx, refusal)
	pause, log := r.sent(err)
	if log {
		r.logger.Warn("a refused write was not reported to the lock service", "error", err)
	}
	time.AfterFunc(pause, r.sendNext)
}

// sent counts a report with its outcome. It returns the time until the next one, and
// whether to log the error.
func (r *Reporter) sent(err error) (pause time.Duration, log bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.counts.Sent++
		pause = pauseAfterReport
	case errors.Is(err, lease.ErrClosed):
		r.counts.Dropped += 1 + uint64(len(r.queue))
		r.queue = nil
	default:
		r.counts.Failed++
		pause = pauseAfterFailure
		code, now := lease.Code(err), r.clock.Now()
		last, logged := r.logged[code]
		if log = !logged || now.Since(last) >= logInterval; log {
			r.logged[code] = now
		}
	}
	r.sending = false
	if len(r.queue) == 0 && r.flushed != nil {
		close(r.flushed)
		r.flushed = nil
	}
	return pause, log
}

//go:build linux

package torture

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

// The timings of a holder.
const (
	// leaseTTL is short, so that pauses exceed it.
	leaseTTL     = time.Second
	dialLimit    = 10 * time.Second
	acquireLimit = 4 * time.Second
	storageLimit = 5 * time.Second
	releaseLimit = 3 * time.Second
	thinkTime    = 100 * time.Millisecond
)

// holder acquires locks, writes under them, and reports both.
type holder struct {
	name    string
	life    string // distinguishes its attempts from those of an earlier process of this name
	client  *lease.Client
	storage Storage
	random  *rand.Rand
	firstOp uint64

	mu       sync.Mutex
	emit     func(property.Event)
	log      io.Writer
	ops      uint64
	attempts int
}

// newHolder dials the service, with retries until ctx ends, since members may be down.
// Close the holder when done.
func newHolder(ctx context.Context, s Spec, storage Storage, log io.Writer, emit func(property.Event)) (*holder,
	error) {
	h := &holder{name: s.Name, life: fmt.Sprintf("%s.%d", s.Name, s.Life), storage: storage,
		random: rand.New(rand.NewPCG(s.Seed, uint64(s.Number)<<32|uint64(s.Life))), emit: emit, log: log,
		firstOp: uint64(s.Number)<<44 | uint64(s.Life)<<24}
	if s.Locks != "" {
		return h, h.openLocks(ctx, s)
	}
	config, err := trust(s.CA)
	if err != nil {
		return nil, err
	}
	options := []client.Option{client.WithTLS(config), client.WithLeaseOptions(lease.WithName(s.Name)),
		client.WithLogger(slog.New(slog.NewTextHandler(log, nil)))}
	if s.ThroughMember {
		options = append(options, client.WithoutRedis())
	}
	for {
		limited, cancel := context.WithTimeout(ctx, dialLimit)
		h.client, err = client.Dial(limited, s.Endpoints, options...)
		cancel()
		if err == nil || !wait(ctx, thinkTime) {
			return h, err
		}
		h.note("dial: %v", err)
	}
}

func (h *holder) close() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	_ = h.client.Close(ctx)
}

// record emits an event with the current time. The start of an operation is recorded
// before it, its end after it.
func (h *holder) record(e property.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At, e.Who = monotonic(), h.name
	h.emit(e)
}

// attempt acquires a lock, writes under it and releases it. It reports whether all
// of that succeeded. The event of a grant has its mode as Note.
func (h *holder) attempt(ctx context.Context, resource fencing.Resource) bool {
	h.attempts++
	event := property.Event{Resource: resource, Attempt: property.Attempt(fmt.Sprintf("%s/%d", h.life, h.attempts))}
	as := func(kind property.Kind) property.Event { e := event; e.Kind = kind; return e }
	options := []lease.AcquireOption{lease.WithTTL(leaseTTL)}
	abandons := h.random.IntN(20) == 0 // does not release
	if abandons {
		options = append(options, lease.WithoutRenewal())
	}
	limited, cancel := context.WithTimeout(ctx, acquireLimit)
	defer cancel()
	h.record(as(property.Requested))
	l, err := h.client.Acquire(limited, resource, options...)
	if err != nil {
		if errors.Is(err, engine.ErrHeld) || errors.Is(err, engine.ErrUnavailable) {
			h.record(as(property.Denied))
		}
		h.note("%s: not granted: %v", resource, err)
		return false
	}
	event.Token = l.Token()
	acquired := as(property.Acquired)
	acquired.Note = l.Mode().String()
	h.record(acquired)
	var once sync.Once
	end := func() { once.Do(func() { h.record(as(property.Ended)) }) }
	stop := context.AfterFunc(l.Context(), end) // at its local deadline
	done := h.work(ctx, l)
	end()
	stop()
	if !abandons {
		released, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
		defer cancel()
		_ = l.Release(released) // the release may be lost
	}
	return done
}

// work enters the gate, reads and writes a few times. A careless holder never checks its
// lease again, like one that is paused right after the check.
func (h *holder) work(ctx context.Context, l *lease.Lease) bool {
	careless := h.random.IntN(2) == 0
	resource, token := l.GateResource(), l.Token()
	if _, ok := h.operation(ctx, property.Event{Resource: resource, Token: token, Access: property.Enter},
		func(ctx context.Context, _ uint64) (uint64, error) {
			return 0, h.storage.Enter(ctx, resource, token)
		}); !ok {
		return false
	}
	seen, ok := h.operation(ctx, property.Event{Resource: resource, Token: token, Access: property.Read},
		func(ctx context.Context, _ uint64) (uint64, error) {
			return h.storage.Read(ctx, resource)
		})
	if !ok {
		return false
	}
	for range 1 + h.random.IntN(4) {
		if !wait(ctx, time.Duration(h.random.Int64N(int64(thinkTime)))) || !careless && l.Err() != nil {
			return false
		}
		next := seen + 1
		seen, ok = h.operation(ctx, property.Event{Resource: resource, Token: token, Seen: seen, Version: next},
			func(ctx context.Context, op uint64) (uint64, error) {
				return next, h.storage.Write(ctx, Write{Op: op, Resource: resource, Token: token, Seen: next - 1, Version: next})
			})
		if !ok {
			return false
		}
	}
	return true
}

// operation executes one operation on the storage. ok is false if it was refused or its
// outcome is unknown; the latter is not recorded.
func (h *holder) operation(ctx context.Context, e property.Event, do func(ctx context.Context, op uint64) (uint64,
	error)) (version uint64, ok bool) {
	h.ops++
	e.Op, e.Kind = h.firstOp|h.ops, property.Sent
	h.record(e)
	limited, cancel := context.WithTimeout(ctx, storageLimit)
	defer cancel()
	version, err := do(limited, e.Op)
	switch {
	case err == nil:
		e.Kind, e.Version = property.Acknowledged, version
		h.record(e)
		return version, true
	case errors.Is(err, fencing.ErrStale):
		e.Kind = property.Rejected
		h.record(e)
	}
	h.note("%s: %v", e.Resource, err)
	return 0, false
}

// note logs an error.
func (h *holder) note(format string, args ...any) {
	fmt.Fprintf(h.log, "%v %s\n", monotonic(), fmt.Sprintf(format, args...))
}

// trust returns the TLS configuration of a client.
func trust(ca string) (*tls.Config, error) {
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no certificate", ca)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, nil
}

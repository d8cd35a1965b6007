package refusals_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/memory"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/telemetry/refusals"
)

// service is a backend that records reports.
type service struct {
	engine.Backend
	mu      sync.Mutex
	err     error
	block   chan struct{} // if not nil, a report waits until it is closed or its context ends
	reports []engine.Refusal
}

func (s *service) ReportRefusal(ctx context.Context, refusal engine.Refusal) error {
	s.mu.Lock()
	block := s.block
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.reports = append(s.reports, refusal)
	}
	return s.err
}

func (s *service) set(err error, block chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.block = err, block
}

func (s *service) received() []engine.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reports
}

type setup struct {
	*service
	t        *testing.T
	client   *lease.Client
	reporter *refusals.Reporter
	audit    func(context.Context, storagegate.Decision)
	log      *bytes.Buffer
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	backend, err := memory.New()
	require.NoError(t, err)
	s := &setup{t: t, service: &service{Backend: backend}, log: &bytes.Buffer{}}
	s.client, err = lease.New(s.service, lease.WithName("worker-1"), lease.WithClock(engine.MonotonicClock()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.client.Close(context.Background())) })
	s.reporter = refusals.New(s.client, refusals.WithLogger(slog.New(slog.NewTextHandler(s.log, nil))))
	s.audit = s.reporter.Audit("memory")
	return s
}

func (s *setup) refuse(resource fencing.Resource, token, mark fencing.Token) {
	s.audit(s.t.Context(), storagegate.Decision{Resource: resource, Token: token, Mark: mark, Outcome: storagegate.Stale})
}

func (s *setup) flush() {
	s.t.Helper()
	require.NoError(s.t, s.reporter.Flush(s.t.Context()))
}

func TestReportsRefusedWritesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.audit(t.Context(), storagegate.Decision{Resource: "orders", Token: 9, Mark: 9, Outcome: storagegate.Admitted})
		s.refuse("orders", 7, 9)
		s.audit(t.Context(), storagegate.Decision{Resource: "orders", Mark: 9, Outcome: storagegate.Tokenless})
		s.refuse("pool#12", 3, 4) // a permit
		s.refuse("issue#a", 3, 4) // no permit
		s.flush()
		require.Equal(t, []engine.Refusal{
			{Resource: "orders", Token: 7, Mark: 9, Gate: "memory", Reason: "stale", Holder: "worker-1"},
			{Resource: "orders", Mark: 9, Gate: "memory", Reason: "tokenless", Holder: "worker-1"},
			{Resource: "pool", Token: 3, Mark: 4, Gate: "memory", Reason: "stale", Holder: "worker-1"},
			{Resource: "issue#a", Token: 3, Mark: 4, Gate: "memory", Reason: "stale", Holder: "worker-1"},
		}, s.received())
		require.Equal(t, refusals.Counts{Sent: 4}, s.reporter.Counts())
	})
}

// TestOneReportWithinAWhile checks that a holder that goes on writing is reported once
// in ten seconds or so, even if the mark rises.
func TestOneReportWithinAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		for i := range 1000 {
			s.refuse("orders", 7, fencing.Token(9+i))
		}
		s.reporter.Audit("sql")(t.Context(), storagegate.Decision{Resource: "orders", Token: 7, Mark: 9,
			Outcome: storagegate.Stale})
		s.flush()
		require.Equal(t, refusals.Counts{Sent: 2, Repeated: 999}, s.reporter.Counts(), "one for each gate")
		time.Sleep(30 * time.Second)
		s.refuse("orders", 7, 9)
		s.flush()
		require.Equal(t, uint64(3), s.reporter.Counts().Sent)
	})
}

// TestWriterNeverWaits checks that a service that does not answer delays no writer, that
// the memory of the Reporter is bounded, and that it continues when the service answers.
func TestWriterNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		block := make(chan struct{})
		s.set(nil, block)
		began := time.Now()
		for i := range 5000 {
			s.refuse(fencing.Resource(fmt.Sprint("orders/", i)), 7, 9)
		}
		require.Zero(t, time.Since(began), "the bubble's clock stands still unless everybody waits")
		counts := s.reporter.Counts()
		require.GreaterOrEqual(t, counts.Dropped, uint64(5000-257))
		s.set(nil, nil)
		close(block)
		s.flush()
		counts = s.reporter.Counts()
		require.Equal(t, uint64(5000), counts.Sent+counts.Dropped)
		require.NotZero(t, counts.Sent)
	})
}

// TestServiceRestarts checks that refusals that wait are sent after an outage.
func TestServiceRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.set(engine.ErrUnavailable, nil)
		s.refuse("orders/1", 7, 9)
		time.Sleep(2 * time.Second) // the client still retries
		s.refuse("orders/2", 7, 9)
		s.set(nil, nil)
		s.flush()
		require.Equal(t, refusals.Counts{Sent: 2}, s.reporter.Counts())

		s.set(engine.ErrUnavailable, nil)
		s.refuse("orders/3", 7, 9)
		s.flush()
		require.Equal(t, refusals.Counts{Sent: 2, Failed: 1}, s.reporter.Counts())
		s.set(nil, nil)
		s.refuse("orders/4", 7, 9)
		s.flush()
		require.Equal(t, refusals.Counts{Sent: 3, Failed: 1}, s.reporter.Counts())
	})
}

// TestMissingRightIsLoggedOnce checks that a user who may not report does not fill the
// log.
func TestMissingRightIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.set(fmt.Errorf("%w: user ci may not acquire orders", engine.ErrForbidden), nil)
		for i := range 20 {
			s.refuse(fencing.Resource(fmt.Sprint("orders/", i)), 7, 9)
		}
		s.flush()
		require.Equal(t, refusals.Counts{Failed: 20}, s.reporter.Counts())
		require.Equal(t, 1, strings.Count(s.log.String(), "level=WARN"))
		require.Contains(t, s.log.String(), "user ci may not acquire")
	})
}

// TestWithoutAService checks a client whose engine records nothing.
func TestWithoutAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend, err := memory.New()
		require.NoError(t, err)
		c, err := lease.New(backend)
		require.NoError(t, err)
		require.ErrorIs(t, c.ReportRefusal(t.Context(), lease.Refusal{Resource: "orders"}), lease.ErrUnsupported)
		r := refusals.New(c, refusals.WithLogger(slog.New(slog.DiscardHandler)))
		r.Audit("memory")(t.Context(), storagegate.Decision{Resource: "orders", Token: 7, Mark: 9,
			Outcome: storagegate.Stale})
		require.NoError(t, r.Flush(t.Context()))
		require.Equal(t, refusals.Counts{Failed: 1}, r.Counts())
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestCloseDuringReport checks that Close does not wait for a service that does not
// answer, and that the Reporter stops with its client.
func TestCloseDuringReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.set(nil, make(chan struct{}))
		s.refuse("orders/1", 7, 9)
		s.refuse("orders/2", 7, 9)
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.reporter.Flush(short), context.DeadlineExceeded)
		began := time.Now()
		require.NoError(t, s.client.Close(t.Context()))
		require.Zero(t, time.Since(began))
		s.flush()
		require.Equal(t, refusals.Counts{Dropped: 2}, s.reporter.Counts())
		s.refuse("orders/3", 7, 9)
		s.flush()
		require.Equal(t, refusals.Counts{Dropped: 3}, s.reporter.Counts())
		require.Empty(t, s.log.String())
	})
}

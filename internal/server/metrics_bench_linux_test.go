package server_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
)

// benchmarkPairs is the number of acquires and releases of one round.
const benchmarkPairs = 4000

// BenchmarkMetricsCost compares a member that records metrics with one that does not. Each
// is a process of its own. Callers acquire and release locks of their own on a session
// stream, in rounds that alternate between the two members. The figures are processor
// time of the member for one operation: the least of all rounds of each member, since
// other processes can only add to it, the difference of the two, and as a measure of
// noise the difference between the least and the median round without metrics.
//
//	go test -run '^$' -bench MetricsCost -benchtime 200x ./internal/server
func BenchmarkMetricsCost(b *testing.B) {
	sides := []*costSide{newCostSide(b, true), newCostSide(b, false)}
	for _, callers := range []int{64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			for _, s := range sides {
				s.round(b, callers) // warm up
				s.perOperation = nil
			}
			for i := range b.N {
				sides[i%2].round(b, callers)
				sides[1-i%2].round(b, callers)
			}
			off, on := slices.Min(sides[0].perOperation), slices.Min(sides[1].perOperation)
			slices.Sort(sides[0].perOperation)
			median := sides[0].perOperation[b.N/2]
			b.ReportMetric(off, "off-us/op")
			b.ReportMetric(on, "on-us/op")
			b.ReportMetric(100*(on-off)/off, "cost-%")
			b.ReportMetric(100*(median-off)/off, "noise-%")
			b.ReportMetric(0, "ns/op") // of a round: of no interest
		})
	}
}

// costSide is one of the two members.
type costSide struct {
	member       *member
	session      engine.Session
	nonce        atomic.Int64
	perOperation []float64 // microseconds, one for each round
}

func newCostSide(b *testing.B, unmeasured bool) *costSide {
	b.Helper()
	m := &member{t: b, spec: memberSpec{ID: "n1", Dir: b.TempDir(), Raft: testserver.FreeAddr(b),
		API: testserver.FreeAddr(b), Unmeasured: unmeasured}}
	m.start()
	b.Cleanup(m.kill)
	eventually(b, "the member leads", func() bool { return m.status()["serves"] == true })
	session, err := newClient(b, []string{m.spec.API}).Open(testContext(b), engine.SessionConfig{ID: engine.NewSessionID(),
		TTL: engine.MaxTTL})
	require.NoError(b, err)
	return &costSide{member: m, session: session}
}

// round runs benchmarkPairs pairs of operations.
func (s *costSide) round(b *testing.B, callers int) {
	b.Helper()
	var work sync.WaitGroup
	var done atomic.Int64
	before := s.processorTime(b)
	for i := range callers {
		work.Go(func() {
			name := fencing.Resource(fmt.Sprint("bench/", i))
			for done.Add(1) <= benchmarkPairs {
				nonce := engine.Nonce(s.nonce.Add(1))
				_, err := s.session.Acquire(context.Background(), engine.Request{Nonce: nonce, Resources: []fencing.Resource{name}})
				if err == nil {
					err = s.session.Release(context.Background(), engine.Held{Nonce: nonce})
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	s.perOperation = append(s.perOperation, float64((s.processorTime(b)-before).Nanoseconds())/1e3/(2*benchmarkPairs))
}

// processorTime returns the processor time of the member's process.
func (s *costSide) processorTime(b *testing.B) time.Duration {
	b.Helper()
	const scheduled = 2 // CPUCLOCK_SCHED of clock_getcpuclockid(3)
	var t unix.Timespec
	require.NoError(b, unix.ClockGettime(int32(^s.member.command.Process.Pid<<3|scheduled), &t))
	return time.Duration(t.Nano())
}

package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

// curveWorkers is the number of workers of a curve over another size.
const curveWorkers = 64

// measureExclusion checks that a lock excludes. The workers increment a number without synchronization while they hold
// the lock: a lost increment shows that two of them held it at once.
func measureExclusion(ctx context.Context, b *bench, t *target, s *results.Sample) error {
	workers := s.Params["workers"]
	var grants atomic.Int64
	var unsynchronized int64
	options := b.options(s.Work)
	options.Granted = func(load.Grant) {
		before := unsynchronized
		runtime.Gosched() // a second holder would read the same number
		unsynchronized = before + 1
		grants.Add(1)
	}
	_, err := t.load(ctx, s, load.Work{Kind: load.Contended, Workers: workers, Clients: t.clients(workers)}, options, nil)
	if lost := grants.Load() - unsynchronized; err == nil && lost != 0 {
		err = fmt.Errorf("%d of %d grants overlapped with another", lost, grants.Load())
	}
	return err
}

// measureWaiters measures handoffs of one lock over the number of workers that want it.
func measureWaiters(ctx context.Context, b *bench, t *target, s *results.Sample) error {
	waiters := s.Params["waiters"]
	options := b.options(s.Work)
	options.WarmUp += time.Duration(waiters) * 200 * time.Microsecond // until all of them wait
	work := load.Work{Kind: load.Contended, Workers: waiters, Clients: 1}
	_, err := t.load(ctx, s, work, options, func() error { return t.memory(ctx, s) })
	return err
}

// measureBatch measures the operations per log entry over the number of workers.
func measureBatch(ctx context.Context, b *bench, t *target, s *results.Sample) error {
	leader, err := t.cluster.Leader(ctx)
	if err != nil {
		return err
	}
	before, err := metrics(ctx, t.cluster.Endpoints[leader])
	if err != nil {
		return err
	}
	work := load.Work{Kind: load.Own, Workers: s.Params["workers"], Clients: 1}
	if _, err := t.load(ctx, s, work, b.options(s.Work), nil); err != nil {
		return err
	}
	after, err := metrics(ctx, t.cluster.Endpoints[leader])
	if err != nil {
		return err
	}
	const metric = "leased_raft_entry_operations"
	entries := after[metric+"_count"] - before[metric+"_count"]
	if entries <= 0 {
		return errors.New("the leader has changed, or has no metric " + metric)
	}
	s.Figures[results.EntryOperations] = (after[metric+"_sum"] - before[metric+"_sum"]) / entries
	return nil
}

// measureSessions measures the rate and the memory over the number of sessions, each of a client with its own
// connection and a lease.
func measureSessions(ctx context.Context, b *bench, t *target, s *results.Sample) error {
	size := s.Params["sessions"]
	return b.measureBeside(ctx, t, s, size, size)
}

// measureLeases measures the rate and the memory over the number of leases of one session, and the pause that a
// snapshot of them causes.
func measureLeases(ctx context.Context, b *bench, t *target, s *results.Sample) error {
	// The leases of the workers count too: the members allow a user a million by default.
	if err := b.measureBeside(ctx, t, s, 1, s.Params["leases"]-curveWorkers); err != nil {
		return err
	}
	return b.measurePause(ctx, t, s)
}

// measureBeside measures workers with locks of their own while holders keep others.
func (b *bench) measureBeside(ctx context.Context, t *target, s *results.Sample, sessions, leases int) error {
	if err := t.hold(sessions, leases); err != nil {
		return err
	}
	work := load.Work{Kind: load.Own, Workers: curveWorkers, Clients: 1}
	_, err := t.load(ctx, s, work, b.options(s.Work), func() error { return t.memory(ctx, s) })
	return err
}

// load runs work and stores its figures. AtEnd is called when the measured time is over, while the workers still
// work; it may be nil.
func (t *target) load(ctx context.Context, s *results.Sample, work load.Work, options load.Options,
	atEnd func() error) (load.Result, error) {
	m := meter.New(t.cluster.Pids)
	var failed error
	options.Begin, options.End = m.Begin, func() {
		m.End()
		if atEnd != nil {
			failed = atEnd()
		}
	}
	result, err := load.Run(ctx, t.open, work, options)
	fill(s, result, m.Usage())
	return result, errors.Join(err, failed)
}

// memory stores the memory of the leader, and the mean of the other members.
func (t *target) memory(ctx context.Context, s *results.Sample) error {
	leader, err := t.cluster.Leader(ctx)
	if err != nil {
		return err
	}
	followers, pids := 0.0, t.cluster.Pids()
	for i, pid := range pids {
		if i == leader {
			s.Figures[results.MemoryTotalLeader] = float64(meter.Memory(pid))
		} else {
			followers += float64(meter.Memory(pid))
		}
	}
	s.Figures[results.MemoryTotalFollower] = followers / float64(len(pids)-1)
	return nil
}

// metrics returns the metrics of a member by name, without those that have labels.
func metrics(ctx context.Context, endpoint string) (map[string]float64, error) {
	page, err := get(ctx, "http://"+endpoint+"/metrics")
	if err != nil {
		return nil, err
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(page)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil && !strings.HasPrefix(name, "#") {
			found[name] = value
		}
	}
	return found, nil
}

// get returns a page of a member.
func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read %s: %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
}

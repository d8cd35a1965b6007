package raftstore

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/raftstore/transport"
)

// BenchmarkEngine measures three nodes of the Raft library alone, and BenchmarkService
// three nodes of this package, both on real disks and loopback TCP.
//
//	go test -run '^$' -bench 'Engine|Service' -benchtime 2s ./raftstore

var kinds = []logstore.Kind{logstore.Bolt, logstore.WAL}

// slowTimeouts prevent elections on a busy machine.
func slowTimeouts(c *Config) { c.HeartbeatTimeout, c.StoreDeadline = 2*time.Second, time.Minute }

// noopSize is the size of an operation of the bare Raft library.
const noopSize = 100

type noopFSM struct{}

func (noopFSM) Apply(*raft.Log) any                 { return nil }
func (noopFSM) Snapshot() (raft.FSMSnapshot, error) { return noopSnapshot{}, nil }
func (noopFSM) Restore(r io.ReadCloser) error       { return r.Close() }

type noopSnapshot struct{}

func (noopSnapshot) Persist(sink raft.SnapshotSink) error { return sink.Close() }
func (noopSnapshot) Release()                             {}

// bareEngine starts three nodes of the Raft library alone, on the same stores and
// transport.
func bareEngine(b *testing.B, kind logstore.Kind) *raft.Raft {
	var engines []*raft.Raft
	var servers []raft.Server
	for i := range 3 {
		c := tcpConfig(b, fmt.Sprintf("bare%d", i), kind)
		slowTimeouts(&c)
		c = c.filled()
		storage, err := openDisk(c)
		require.NoError(b, err)
		transport, err := transport.Listen(transport.Config{Address: c.Address,
			Logger: engineLogger(quiet, engine.MonotonicClock())})
		require.NoError(b, err)
		log, err := raft.NewLogCache(cachedEntries, storage.Log)
		require.NoError(b, err)
		engine := c.engine(nil)
		engine.BatchApplyCh, engine.MaxAppendEntries = true, 256 // the batching of the library
		r, err := raft.NewRaft(engine, noopFSM{}, log, storage.Stable, storage.Snapshots, transport)
		require.NoError(b, err)
		b.Cleanup(func() { _ = r.Shutdown().Error(); _ = storage.Close() })
		engines = append(engines, r)
		servers = append(servers, raft.Server{ID: raft.ServerID(c.ID), Address: transport.LocalAddr()})
	}
	require.NoError(b, engines[0].BootstrapCluster(raft.Configuration{Servers: servers}).Error())
	var leader *raft.Raft
	eventually(b, "a leader of the bare library", func() bool {
		for _, r := range engines {
			if r.State() == raft.Leader {
				leader = r
			}
		}
		return leader != nil
	})
	return leader
}

// load runs b.N operations with this many callers and reports rate and latency.
func load(b *testing.B, callers int, operate func(caller, i int) error) {
	var next atomic.Int64
	times := make([][]time.Duration, callers)
	clock := engine.MonotonicClock()
	var wg sync.WaitGroup
	b.ResetTimer()
	for caller := range callers {
		wg.Go(func() {
			for {
				i := int(next.Add(1))
				if i > b.N {
					return
				}
				start := clock.Now()
				if err := operate(caller, i); err != nil {
					b.Error(err)
					return
				}
				times[caller] = append(times[caller], clock.Now().Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(times...)
	slices.Sort(all)
	if len(all) > 0 {
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

func BenchmarkEngine(b *testing.B) {
	for _, kind := range kinds {
		for _, callers := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d", kind, callers), func(b *testing.B) {
				leader := bareEngine(b, kind)
				load(b, callers, noop(leader, 1))
			})
		}
		for name, operate := range map[string]func(*raft.Raft) func(int, int) error{
			"batched=256": func(r *raft.Raft) func(int, int) error { return noops(r, 256) },
			"packed=256":  func(r *raft.Raft) func(int, int) error { return noop(r, 256) },
		} {
			b.Run(fmt.Sprintf("%s/%s", kind, name), func(b *testing.B) {
				operate := operate(bareEngine(b, kind))
				b.ResetTimer()
				for done := 0; done < b.N; done += 256 {
					require.NoError(b, operate(0, 0))
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			})
		}
	}
}

// noop proposes count operations to the bare library in one entry.
func noop(leader *raft.Raft, count int) func(int, int) error {
	data := make([]byte, noopSize*count)
	return func(int, int) error { return leader.Apply(data, 0).Error() }
}

// noops proposes count operations to the bare library in as many entries, then waits
// for all of them.
func noops(leader *raft.Raft, count int) func(int, int) error {
	data := make([]byte, noopSize)
	futures := make([]raft.ApplyFuture, count)
	return func(int, int) error {
		for i := range futures {
			futures[i] = leader.Apply(data, 0)
		}
		for _, f := range futures {
			if err := f.Error(); err != nil {
				return err
			}
		}
		return nil
	}
}

func BenchmarkService(b *testing.B) {
	for _, kind := range kinds {
		for _, callers := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d", kind, callers), func(b *testing.B) {
				c := startTCP(b, 3, kind, slowTimeouts)
				operate := locks(b, c, callers)
				before := c.leader().Status().Chain.Index
				load(b, callers, operate)
				b.ReportMetric(float64(b.N)/float64(c.leader().Status().Chain.Index-before), "ops/entry")
			})
		}
	}
}

// locks returns a function that alternately acquires and releases a separate lock for
// each caller.
func locks(b *testing.B, c *cluster, callers int) func(caller, _ int) error {
	ctx := context.Background()
	s, err := c.backend().Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour,
		Clock: engine.SystemClock()})
	require.NoError(b, err)
	var nonces atomic.Uint64
	held := make([]engine.Nonce, callers)
	names := make([][]fencing.Resource, callers)
	for i := range names {
		names[i] = []fencing.Resource{fencing.Resource(fmt.Sprintf("bench/%d/%04d", callers, i))}
	}
	return func(caller, _ int) error {
		if nonce := held[caller]; nonce != 0 {
			held[caller] = 0
			return s.Release(ctx, engine.Held{Nonce: nonce})
		}
		held[caller] = engine.Nonce(nonces.Add(1))
		_, err := s.Acquire(ctx, engine.Request{Nonce: held[caller], Resources: names[caller], Wait: true, Holder: "bench"})
		return err
	}
}

// BenchmarkRatio alternates between the service and the bare library every fraction of a
// second, so that other load on the machine affects both. The library gets 256 operations
// as separate entries, as the service has 256 callers. packed-ratio compares with one
// entry of 256 times the size, which is not decoded and has one answer.
func BenchmarkRatio(b *testing.B) {
	const turn = 250 * time.Millisecond
	for _, kind := range kinds {
		b.Run(string(kind), func(b *testing.B) {
			leader := bareEngine(b, kind)
			c := startTCP(b, 3, kind, slowTimeouts)
			one, many := locks(b, c, 1), locks(b, c, 256)
			var rates, packed, p50s, bares, services []float64
			b.ResetTimer()
			for range b.N {
				bare, _ := slice(b, turn, 1, noops(leader, 256))
				service, _ := slice(b, turn, 256, many)
				dense, _ := slice(b, turn, 1, noop(leader, 256))
				packed = append(packed, service/(dense*256))
				rates, bares, services = append(rates, service/(bare*256)), append(bares, bare*256), append(services, service)
				_, bareP50 := slice(b, turn, 1, noop(leader, 1))
				_, p50 := slice(b, turn, 1, one)
				p50s = append(p50s, float64(p50)/float64(bareP50))
			}
			b.ReportMetric(median(rates), "rate-ratio@256")
			b.ReportMetric(median(packed), "packed-ratio@256")
			b.ReportMetric(median(p50s), "p50-ratio@1")
			b.ReportMetric(median(bares), "engine-ops/s@256")
			b.ReportMetric(median(services), "service-ops/s@256")
		})
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// slice runs operations for d and returns their rate and median latency.
func slice(b *testing.B, d time.Duration, callers int, operate func(caller, i int) error) (rate float64,
	p50 time.Duration) {
	clock := engine.MonotonicClock()
	began := clock.Now()
	times := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for start := clock.Now(); start.Since(began) < d; {
				if err := operate(caller, 0); err != nil {
					b.Error(err)
					return
				}
				now := clock.Now()
				times[caller] = append(times[caller], now.Since(start))
				start = now
			}
		})
	}
	wg.Wait()
	all := slices.Concat(times...)
	slices.Sort(all)
	require.NotEmpty(b, all)
	return float64(len(all)) / clock.Now().Since(began).Seconds(), all[len(all)/2]
}

// BenchmarkLeaseMemory reports the memory of a held lease on a node.
func BenchmarkLeaseMemory(b *testing.B) {
	const leases = 100_000
	for b.Loop() {
		f := newBareNode().fsm
		before := heapInUse()
		fillLeases(f, leases)
		b.ReportMetric(float64(heapInUse()-before)/leases, "B/lease")
		runtime.KeepAlive(f)
	}
}

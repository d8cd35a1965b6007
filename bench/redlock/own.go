package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/leased-project/leased/internal/testserver"
)

// meter reads the CPU time of the servers and of this process.
type meter struct {
	servers []*testserver.RedisServer
}

func (m *meter) onServers() time.Duration {
	var ticks int64
	for _, s := range m.servers {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Pid()))
		if err != nil {
			continue
		}
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		for _, f := range fields[11:13] { // utime and stime
			n, _ := strconv.ParseInt(string(f), 10, 64)
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func (m *meter) client() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// figures are what one measurement gives.
type figures struct {
	pairs      float64 // a second
	p50, p99   time.Duration
	cpu        float64 // milliseconds of CPU for 1,000 pairs, servers and client
	serverPart float64
	errors     int64
}

// own has callers take their own locks for a while.
func own(d driver, m *meter, callers int, length time.Duration) figures {
	ctx := context.Background()
	for c := range callers { // connections, scripts and counters are there
		_ = d.pair(ctx, "own/"+strconv.Itoa(c), nil)
	}
	var stop atomic.Bool
	var failed atomic.Int64
	times := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	cpu, servers, began := m.client(), m.onServers(), time.Now()
	for c := range callers {
		name := "own/" + strconv.Itoa(c)
		wg.Go(func() {
			for !stop.Load() {
				t := time.Now()
				if err := d.pair(ctx, name, nil); err != nil {
					failed.Add(1)
					continue
				}
				times[c] = append(times[c], time.Since(t))
			}
		})
	}
	time.Sleep(length)
	stop.Store(true)
	wg.Wait()
	took := time.Since(began)
	onServers := m.onServers() - servers
	all := slices.Concat(times...)
	slices.Sort(all)
	n := len(all)
	if n == 0 {
		return figures{errors: failed.Load()}
	}
	perThousand := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n) }
	return figures{pairs: float64(n) / took.Seconds(), p50: all[n/2], p99: all[n*99/100], errors: failed.Load(),
		cpu: perThousand(onServers + m.client() - cpu), serverPart: perThousand(onServers)}
}

// own measures all in turn, so that what else runs on the machine hits all.
func (s settings) own(out io.Writer, m *meter, addrs []string, callers int) error {
	results := map[string][]figures{}
	for range s.rounds {
		for _, kind := range []string{"redsync", "bare", "leased"} {
			if s.driver != "" && s.driver != kind {
				results[kind] = append(results[kind], figures{})
				continue
			}
			d, err := newDriver(kind, addrs)
			if err != nil {
				return err
			}
			results[kind] = append(results[kind], own(d, m, callers, s.length))
			d.close()
		}
	}
	row := func(what, wanted string, value func(f figures) float64) {
		theirs, bare, ours := median(results["redsync"], value), median(results["bare"], value), median(results["leased"], value)
		fmt.Fprintf(out, "%d callers, %s\t%.1f\t%.1f\t%.1f\t%.2f\t%s\n", callers, what, theirs, bare, ours, ours/theirs, wanted)
	}
	wanted := map[int]string{256: ">= 6", 64: ">= 4"}
	row("pairs/s", wanted[callers], func(f figures) float64 { return f.pairs })
	row("p50 us", map[int]string{1: "<= 0.6"}[callers], func(f figures) float64 { return float64(f.p50.Microseconds()) })
	row("p99 us", "", func(f figures) float64 { return float64(f.p99.Microseconds()) })
	row("CPU ms per 1,000 pairs", map[int]string{256: "<= 0.25"}[callers], func(f figures) float64 { return f.cpu })
	row("of it servers", "", func(f figures) float64 { return f.serverPart })
	row("errors", "0", func(f figures) float64 { return float64(f.errors) })
	return nil
}

func median(all []figures, value func(figures) float64) float64 {
	var values []float64
	for _, f := range all {
		values = append(values, value(f))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

package gatetest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// Compare benchmarks a gated write against the same write without a gate on one
// storage. It alternates between the two in short rounds and reports medians over
// the rounds, so that other load on the machine affects both or few rounds. Each
// writer calls its function with its own number and an increasing count, and
// should use its own resources.
//
// Compare reports the latency of one write, the ratio of the latencies (the cost
// of the gate) and the ratio of the throughputs. N counts pairs of writes.
func Compare(b *testing.B, writers int, ungated, gated func(writer, n int) error) {
	b.Helper()
	const count = 32 // writes of each writer in a round
	sides := [2]func(writer, n int) error{ungated, gated}
	for _, write := range sides { // warm up connections, caches and marks
		round(b, writers, 0, count, write)
	}
	var latency, wall [2][]float64
	var ratio, throughput []float64
	b.ResetTimer()
	for r := 0; r*count*writers < b.N; r++ {
		for i := range sides {
			side := (i + r) % 2 // alternate which side is first
			took, sum := round(b, writers, r*count, count, sides[side])
			wall[side] = append(wall[side], float64(took))
			latency[side] = append(latency[side], float64(sum)/float64(count*writers))
		}
		ratio = append(ratio, latency[1][r]/latency[0][r])
		throughput = append(throughput, wall[0][r]/wall[1][r])
	}
	b.StopTimer()
	b.ReportMetric(median(latency[0]), "ungated-ns/write")
	b.ReportMetric(median(latency[1]), "gated-ns/write")
	b.ReportMetric(median(latency[1])-median(latency[0]), "extra-ns/write")
	b.ReportMetric(median(ratio), "latency-ratio")
	b.ReportMetric(median(throughput), "throughput-ratio")
	b.ReportMetric(0, "ns/op") // it would be the sum of both
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// round has all writers make count writes. It returns the elapsed time and the
// sum of the writers' times.
func round(b *testing.B, writers, start, count int, write func(writer, n int) error) (wall, sum time.Duration) {
	b.Helper()
	begin := time.Now()
	if writers == 1 { // no goroutine, because a write may take a few nanoseconds
		for n := range count {
			if err := write(0, start+n); err != nil {
				b.Fatal(err)
			}
		}
		wall = time.Since(begin)
		return wall, wall
	}
	var all sync.WaitGroup
	times := make([]time.Duration, writers)
	errs := make([]error, writers)
	for w := range writers {
		all.Go(func() {
			for n := range count {
				if errs[w] = write(w, start+n); errs[w] != nil {
					break
				}
			}
			times[w] = time.Since(begin)
		})
	}
	all.Wait()
	wall = time.Since(begin)
	for w := range writers {
		if errs[w] != nil {
			b.Fatal(errs[w])
		}
		sum += times[w]
	}
	return wall, sum
}

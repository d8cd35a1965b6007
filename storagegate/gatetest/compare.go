package gatetest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// Compare measures a gated write against the same write without a gate, in one
// run on one storage. The two take turns in short rounds, and what is reported
// is the median over the rounds, so that whatever else the machine does falls
// on both or on few. Each writer calls its write with its own number and a
// growing count, and should keep to resources of its own.
//
// It reports the time of one write as a writer sees it, the ratio of the two
// (what the gate costs), and the part of the throughput that is left. N counts
// pairs of writes.
func Compare(b *testing.B, writers int, ungated, gated func(writer, n int) error) {
	b.Helper()
	const round = 32 // writes of each writer
	sides := [2]func(writer, n int) error{ungated, gated}
	for _, write := range sides { // connections, caches and first marks
		turn(b, writers, 0, round, write)
	}
	var latency, wall [2][]float64
	var ratio, throughput []float64
	b.ResetTimer()
	for r := 0; r*round*writers < b.N; r++ {
		for i := range sides {
			side := (i + r) % 2 // neither always goes first
			took, sum := turn(b, writers, r*round, round, sides[side])
			wall[side] = append(wall[side], float64(took))
			latency[side] = append(latency[side], float64(sum)/float64(round*writers))
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
	b.ReportMetric(0, "ns/op") // would be the sum of both
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// turn lets all writers make count writes, and returns how long that took, and
// how long it took for all writers added up.
func turn(b *testing.B, writers, start, count int, write func(writer, n int) error) (wall, sum time.Duration) {
	b.Helper()
	begin := time.Now()
	if writers == 1 { // no goroutine, for writes of a few nanoseconds
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

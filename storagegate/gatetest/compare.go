package gatetest

import (
	"sync"
	"testing"
	"time"
)

// Compare measures a gated write against the same write without a gate, in one
// run on one storage. The two take turns in short rounds, so that whatever else
// the machine does falls on both. Each writer calls its write with its own
// number and a growing count, and should keep to resources of its own.
//
// It reports the time of one write as each writer sees it, the ratio of the two
// (what the gate costs), and the part of the throughput that is left. N counts
// pairs of writes.
func Compare(b *testing.B, writers int, ungated, gated func(writer, n int) error) {
	b.Helper()
	const round = 32 // writes of each writer
	var spent [2]time.Duration
	var each [2]time.Duration
	sides := [2]func(writer, n int) error{ungated, gated}
	for _, write := range sides { // connections, caches and first marks
		turn(b, writers, 0, round, write)
	}
	done := 0
	b.ResetTimer()
	for done < b.N {
		count := min(round, (b.N-done+writers-1)/writers)
		for i := range sides {
			side := (i + done/round) % 2 // neither always goes first
			wall, sum := turn(b, writers, done, count, sides[side])
			spent[side] += wall
			each[side] += sum
		}
		done += count * writers
	}
	b.StopTimer()
	b.ReportMetric(float64(each[0].Nanoseconds())/float64(done), "ungated-ns/write")
	b.ReportMetric(float64(each[1].Nanoseconds())/float64(done), "gated-ns/write")
	b.ReportMetric(float64(each[1]-each[0])/float64(done), "extra-ns/write")
	b.ReportMetric(float64(each[1])/float64(each[0]), "latency-ratio")
	b.ReportMetric(float64(spent[0])/float64(spent[1]), "throughput-ratio")
	b.ReportMetric(0, "ns/op") // would be the sum of both
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

package redlockadapter_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkAvailability reports the rate of grants under faults on at most two of five
// nodes at a time, relative to the rate without faults:
//
//	go test -run '^$' -bench Availability -benchtime 3x ./redlockadapter
//
// An iteration takes twice the time that LEASED_SOAK says, or 20 seconds.
func BenchmarkAvailability(b *testing.B) {
	f := mixedFleet(b)
	watcher := f.backend(b)
	var healthy, faulty int
	for b.Loop() {
		for _, grants := range []*int{&healthy, &faulty} {
			waitFor(b, func() bool { return len(live(b, watcher)) == len(f.servers) })
			ctx, cancel := context.WithTimeout(context.Background(), faultTime(b))
			l := newHistory(cancel)
			working := l.load(ctx, b, f)
			if grants == &faulty {
				f.faults(ctx, b, watcher, func(int) bool { return false })
			}
			working.Wait()
			cancel()
			require.Empty(b, l.violations)
			*grants += l.count()
		}
	}
	b.ReportMetric(float64(faulty)/float64(healthy), "availability")
}

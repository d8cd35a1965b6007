package redlockadapter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAvailability prints how many grants are left under faults on at most two of
// five nodes at a time, against the same load without faults, in turns:
//
//	go test -run TestAvailability -v ./redlockadapter
//
// The figure depends on the machine, so it is not checked. With -v the turns are
// longer, and with LEASED_SOAK more so.
func TestAvailability(t *testing.T) {
	f := mixedFleet(t)
	watcher := f.backend(t)
	turn := chaosTime(t) / 30
	if testing.Verbose() {
		turn *= 5
	}
	var healthy, faulty int
	for range 3 {
		for _, grants := range []*int{&healthy, &faulty} {
			waitFor(t, func() bool { return len(live(t, watcher)) == len(f.servers) })
			ctx, cancel := context.WithTimeout(context.Background(), turn)
			l := newLedger(cancel)
			working := l.load(ctx, t, f)
			if grants == &faulty {
				f.faults(ctx, t, watcher)
			}
			working.Wait()
			cancel()
			require.Empty(t, l.wrong)
			*grants += l.count()
		}
	}
	t.Logf("healthy %d grants, under faults %d, availability %.2f, turns of %v", healthy, faulty, float64(faulty)/float64(healthy), turn.Round(time.Millisecond))
}

package load

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// steps is the number of buckets for each power of two. The largest duration of a bucket is
	// 1.1 % above its smallest, so a quantile is wrong by less than 1 %.
	steps = 64
	// buckets covers all durations.
	buckets = 63*steps + 1
)

// Histogram counts durations. Its methods may be called concurrently; Observe does not
// allocate. The zero Histogram is empty.
type Histogram [buckets]uint64

// Observe counts a duration.
func (h *Histogram) Observe(d time.Duration) {
	atomic.AddUint64(&h[int(steps*math.Log2(float64(max(1, d))))], 1)
}

// Count returns the number of durations.
func (h *Histogram) Count() (n uint64) {
	for i := range h {
		n += atomic.LoadUint64(&h[i])
	}
	return n
}

// Quantile returns a duration that the given part of all durations does not exceed: 0.5
// asks for the median. It returns 0 if the histogram is empty.
func (h *Histogram) Quantile(part float64) (last time.Duration) {
	rank := uint64(part * float64(h.Count()))
	var seen uint64
	for i := range h {
		n := atomic.LoadUint64(&h[i])
		if n == 0 {
			continue
		}
		last = time.Duration(math.Exp2((float64(i) + 0.5) / steps)) // the middle of the bucket
		if seen += n; seen > rank {
			break
		}
	}
	return last
}

// Merge adds the durations of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i := range other {
		atomic.AddUint64(&h[i], atomic.LoadUint64(&other[i]))
	}
}

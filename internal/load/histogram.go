package load

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// steps is the number of buckets for each power of two. A bucket is 1/64 of its
	// smallest duration wide, so a quantile is wrong by less than 1 %.
	steps    = 1 << stepBits
	stepBits = 6
	// buckets covers all durations.
	buckets = (64 - stepBits) * steps
)

// Histogram counts durations. Its methods may be called concurrently; Observe does not
// allocate. The zero Histogram is empty.
type Histogram struct{ counts [buckets]atomic.Uint64 }

// bucketOf returns the bucket of a duration. Durations below 2*steps nanoseconds have
// buckets of one nanosecond.
func bucketOf(d time.Duration) int {
	n := uint64(max(0, d))
	shift := max(0, bits.Len64(n)-stepBits-1)
	return shift*steps + int(n>>shift)
}

// middleOf returns the duration in the middle of a bucket.
func middleOf(bucket int) time.Duration {
	if bucket < 2*steps {
		return time.Duration(bucket)
	}
	shift := bucket/steps - 1
	low := uint64(bucket-shift*steps) << shift
	return time.Duration(low + 1<<shift/2)
}

// Observe counts a duration.
func (h *Histogram) Observe(d time.Duration) { h.counts[bucketOf(d)].Add(1) }

// Count returns the number of durations.
func (h *Histogram) Count() (n uint64) {
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// Quantile returns a duration that the given part of all durations does not exceed: 0.5
// asks for the median. It returns 0 if the histogram is empty.
func (h *Histogram) Quantile(part float64) time.Duration {
	rank := uint64(part * float64(h.Count()))
	var seen uint64
	var last time.Duration
	for i := range h.counts {
		n := h.counts[i].Load()
		if n == 0 {
			continue
		}
		if seen, last = seen+n, middleOf(i); seen > rank {
			break
		}
	}
	return last
}

// Merge adds the durations of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i := range other.counts {
		h.counts[i].Add(other.counts[i].Load())
	}
}

// MarshalJSON encodes the buckets that are not empty.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	counts := map[int]uint64{}
	for i := range h.counts {
		if n := h.counts[i].Load(); n > 0 {
			counts[i] = n
		}
	}
	return json.Marshal(counts)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Histogram) UnmarshalJSON(data []byte) error {
	var counts map[int]uint64
	if err := json.Unmarshal(data, &counts); err != nil {
		return err
	}
	for i, n := range counts {
		if i < 0 || i >= buckets {
			return fmt.Errorf("histogram has bucket %d: there are %d", i, buckets)
		}
		h.counts[i].Store(n)
	}
	return nil
}

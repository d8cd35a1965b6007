package load

import (
	"slices"
	"time"
)

// Result is what a run has measured. An operation counts if it ended within the measured
// time.
type Result struct {
	// Pairs is the number of acquisitions that were also released; of a [Hold], the number
	// of locks held at the same time.
	Pairs int64
	// Elapsed is the measured time; of a [Hold], the time until all locks were held.
	Elapsed time.Duration
	// Acquire has the latencies of acquisitions, and Pair those of an acquisition with its
	// release.
	Acquire, Pair *Histogram
	// Grants has the number of acquisitions of each worker.
	Grants []int64
	// Errors is the number of operations that failed, and FirstError the text of one.
	Errors     int64
	FirstError string
}

// Rate returns the pairs per second.
func (r Result) Rate() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Pairs) / r.Elapsed.Seconds()
}

// Fairness returns the most grants of a worker divided by the fewest. 1 is perfectly
// fair. A worker without a grant counts as one with a single grant.
func (r Result) Fairness() float64 {
	if len(r.Grants) == 0 {
		return 0
	}
	return float64(slices.Max(r.Grants)) / float64(max(1, slices.Min(r.Grants)))
}

// Merge adds the result of other workers that ran at the same time, such as those of
// another process.
func (r *Result) Merge(other Result) {
	if r.Acquire == nil {
		r.Acquire, r.Pair = &Histogram{}, &Histogram{}
	}
	r.Pairs += other.Pairs
	r.Elapsed = max(r.Elapsed, other.Elapsed)
	r.Acquire.Merge(other.Acquire)
	r.Pair.Merge(other.Pair)
	r.Grants = append(r.Grants, other.Grants...)
	r.Errors += other.Errors
	if r.FirstError == "" {
		r.FirstError = other.FirstError
	}
}

package observe

import (
	"slices"
	"sort"
	"time"
)

const (
	// maxSamples is the number of samples after which a series is thinned out.
	maxSamples = 2048
	// sampleWidth is the time that a new sample covers.
	sampleWidth = time.Second
	// slack is how far the times of the same entry may differ: samples are rounded.
	slack = 5 * time.Second
	// A merged sample of age a covers at most a/thinning. A time of age a is returned
	// only if it is known to two seconds or to a/precision.
	thinning, precision = 64, 16
)

// series knows the time of each number of a growing sequence, such as tokens, from few
// samples. The times that it returns are too early by at most two seconds, or by
// 1/precision of the age.
type series struct {
	samples []sample // in the order of their numbers
	closed  bool     // the last sample must not grow: numbers after it may be missing
}

// sample says that the numbers from First to Last belong to the time from Start to End.
type sample struct {
	Start, End  int64 // milliseconds of Unix time
	First, Last uint64
}

// add notes that a number was used at a time. A known number has no effect, as it is
// replayed from the log when a member starts. A number that contradicts the samples shows
// that they belong to another log: add forgets them.
func (s *series) add(at time.Time, number uint64) {
	millis := at.UnixMilli()
	if len(s.samples) == 0 {
		s.begin(millis, number)
		return
	}
	last := &s.samples[len(s.samples)-1]
	switch {
	case number <= last.Last && s.contradicts(millis, number):
		s.samples = s.samples[:0]
		s.begin(millis, number)
	case number <= last.Last:
	case s.closed || millis < last.Start || millis-last.Start >= sampleWidth.Milliseconds():
		s.begin(millis, number)
	default:
		last.End, last.Last = max(last.End, millis), number
	}
}

// contradicts reports whether a number at or below the last one cannot have been used at
// this time.
func (s *series) contradicts(millis int64, number uint64) bool {
	const slack = int64(slack / time.Millisecond)
	if millis > s.samples[len(s.samples)-1].End+slack {
		return true
	}
	i, inside := s.find(number)
	return inside && (millis < s.samples[i].Start-slack || millis > s.samples[i].End+slack)
}

func (s *series) begin(millis int64, number uint64) {
	if len(s.samples) >= maxSamples {
		s.thin(millis)
	}
	s.samples = append(s.samples, sample{millis, millis, number, number})
	s.closed = false
}

// find returns the last sample that begins at or before a number, or -1, and whether the
// sample contains the number.
func (s *series) find(number uint64) (i int, inside bool) {
	i = sort.Search(len(s.samples), func(i int) bool { return s.samples[i].First > number }) - 1
	return i, i >= 0 && number <= s.samples[i].Last
}

// time returns when a number was used, or the zero time if that is not known well enough.
func (s *series) time(number uint64, now time.Time) time.Time {
	i, inside := s.find(number)
	if i < 0 || !inside && i+1 == len(s.samples) {
		return time.Time{}
	}
	from, to := s.samples[i].Start, s.samples[i].End
	if !inside { // it was used between two samples
		from, to = s.samples[i].End, s.samples[i+1].Start
	}
	if age := now.UnixMilli() - from; to-from > max(2*sampleWidth.Milliseconds(), age/precision) {
		return time.Time{}
	}
	return time.UnixMilli(from).UTC()
}

// thin merges neighbours where the result is precise enough for its age. If that is not
// enough, it drops the oldest quarter.
func (s *series) thin(now int64) {
	kept := s.samples[:1]
	for _, next := range s.samples[1:] {
		last := &kept[len(kept)-1]
		if width := next.End - last.Start; width >= 0 && width <= (now-last.Start)/thinning {
			last.End, last.Last = max(last.End, next.End), next.Last
		} else {
			kept = append(kept, next)
		}
	}
	s.samples = kept
	if len(s.samples) > maxSamples*3/4 {
		s.samples = slices.Delete(s.samples, 0, maxSamples/4)
	}
}

// valid reports whether samples that were read from a file are in order.
func (s *series) valid() bool {
	for i, sample := range s.samples {
		if sample.First > sample.Last || sample.Start > sample.End || i > 0 && sample.First <= s.samples[i-1].Last {
			return false
		}
	}
	return len(s.samples) <= maxSamples
}

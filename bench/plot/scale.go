package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// scale maps values to pixels.
type scale struct {
	low, high   float64 // values at the ends
	start, stop float64 // pixels at the ends
	log         bool
}

// newScale returns a scale that contains all values. A logarithmic one needs positive values; it leaves out others.
// A linear one begins at 0.
func newScale(values []float64, log bool, start, stop float64) scale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0 {
			continue
		}
		low, high = math.Min(low, v), math.Max(high, v)
	}
	if low > high {
		low, high = 1, 10
	}
	s := scale{log: log, start: start, stop: stop}
	if log {
		s.low, s.high = logFloor(low), logCeil(high)
		if s.low == s.high {
			s.high *= 10
		}
		return s
	}
	step := niceStep(high)
	s.high = math.Ceil(high/step-1e-9) * step
	return s
}

// tight returns the scale with the ends at the smallest and the largest of several values.
func (s scale) tight(values []float64) scale {
	if len(values) > 0 && slices.Min(values) < slices.Max(values) && (!s.log || slices.Min(values) > 0) {
		s.low, s.high = slices.Min(values), slices.Max(values)
	}
	return s
}

// at returns the pixel of a value.
func (s scale) at(v float64) float64 {
	if s.log {
		v = math.Max(v, s.low)
		return s.start + (math.Log(v)-math.Log(s.low))/(math.Log(s.high)-math.Log(s.low))*(s.stop-s.start)
	}
	return s.start + (v-s.low)/(s.high-s.low)*(s.stop-s.start)
}

// ticks returns the values to label: powers of ten, with 2 and 5 times them if the range is short, or equal steps.
func (s scale) ticks() (ticks []float64) {
	if !s.log {
		for step, i := niceStep(s.high), 0.0; i*step <= s.high*(1+1e-9); i++ {
			ticks = append(ticks, i*step)
		}
		return ticks
	}
	factors := []float64{1}
	if math.Log10(s.high/s.low) <= 3 {
		factors = []float64{1, 2, 5}
	}
	for decade := math.Floor(math.Log10(s.low)); decade <= math.Log10(s.high)+1e-9; decade++ {
		for _, f := range factors {
			if v := f * math.Pow(10, decade); v >= s.low*(1-1e-9) && v <= s.high*(1+1e-9) {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}

// niceStep returns a step of 1, 2 or 5 times a power of ten with four to eight steps up to high.
func niceStep(high float64) float64 {
	if high <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(high/4)))
	for _, f := range []float64{1, 2, 5} {
		if high/(f*power) <= 8 {
			return f * power
		}
	}
	return 10 * power
}

// logFloor returns the largest 1, 2 or 5 times a power of ten that is at most v.
func logFloor(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{5, 2} {
		if f*power <= v*(1+1e-9) {
			return f * power
		}
	}
	return power
}

// logCeil returns the smallest 1, 2 or 5 times a power of ten that is at least v.
func logCeil(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= v*(1-1e-9) {
			return f * power
		}
	}
	return 10 * power
}

// Number formats a value for an axis: 0.5, 20, 5k, 1M.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return trimmed(v/1e6) + "M"
	case a >= 1e3:
		return trimmed(v/1e3) + "k"
	default:
		return trimmed(v)
	}
}

// trimmed formats a value with at most three digits that matter.
func trimmed(v float64) string {
	text := fmt.Sprintf("%.3g", v)
	if strings.ContainsAny(text, "e") {
		text = fmt.Sprintf("%.0f", v)
	}
	return text
}

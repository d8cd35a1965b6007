package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize"
)

// spread is the median of values with their range.
type spread struct {
	count            int
	median, low, top float64
}

func newSpread(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	slices.Sort(values)
	n := len(values)
	return spread{n, (values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}
}

// format prints the median, and the range if there is one.
func (s spread) format(number func(float64) string) string {
	switch {
	case s.count == 0:
		return notMeasured
	case s.count == 1 || number(s.low) == number(s.top):
		return number(s.median)
	default:
		return fmt.Sprintf("%s (%s to %s)", number(s.median), number(s.low), number(s.top))
	}
}

// notMeasured stands for a value that is missing.
const notMeasured = "not measured"

// number prints a value with about three digits that matter, and commas between thousands.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 0.1:
		return fmt.Sprintf("%.3f", v)
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	default:
		return humanize.Comma(int64(math.Round(v)))
	}
}

// times prints a ratio.
func times(v float64) string { return number(v) + "x" }

// percent prints a share with one decimal.
func percent(v float64) string { return fmt.Sprintf("%.1f %%", v) }

// mebibytes prints a number of bytes in MiB.
func mebibytes(v float64) string { return number(v/(1<<20)) + " MiB" }

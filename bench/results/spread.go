package results

import (
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize"
)

// Spread is the median of values with their range.
type Spread struct {
	Count            int
	Median, Low, Top float64
}

// NewSpread returns the spread of values, which it sorts.
func NewSpread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	slices.Sort(values)
	n := len(values)
	return Spread{n, (values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}
}

// Format prints the median, and the range if there is one.
func (s Spread) Format(number func(float64) string) string {
	switch {
	case s.Count == 0:
		return notMeasured
	case s.Count == 1 || number(s.Low) == number(s.Top):
		return number(s.Median)
	default:
		return fmt.Sprintf("%s (%s to %s)", number(s.Median), number(s.Low), number(s.Top))
	}
}

// notMeasured stands for a value that is missing.
const notMeasured = "not measured"

// Number prints a value with about three digits that matter, and commas between thousands.
func Number(v float64) string {
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

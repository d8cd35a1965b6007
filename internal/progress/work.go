package progress

import (
	"fmt"
	"time"
)

// Work is an amount of work.
type Work struct {
	// Done and Total are numbers of bytes, or of something else. Total is 0 if it is not
	// known.
	Done, Total int64
	Elapsed     time.Duration
}

// Left returns the time left at the average rate so far, and whether it is known.
func (w Work) Left() (time.Duration, bool) {
	if w.Done <= 0 || w.Total <= 0 || w.Elapsed <= 0 {
		return 0, false
	}
	return time.Duration(float64(w.Elapsed) / float64(w.Done) * float64(max(0, w.Total-w.Done))), true
}

// Bytes describes a transfer: how much, how fast, and the time left.
func (w Work) Bytes() string {
	text := Size(w.Done)
	if w.Total > 0 {
		text = fmt.Sprintf("%s of %s (%d%%)", text, Size(w.Total), min(100, 100*w.Done/w.Total))
	}
	if w.Elapsed > 0 {
		text += fmt.Sprintf(", %s/s", Size(int64(float64(w.Done)/w.Elapsed.Seconds())))
	}
	if left, known := w.Left(); known {
		text += ", " + TimeLeft(left)
	}
	return text
}

// Size formats a number of bytes.
func Size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, suffix := float64(n)/unit, 0
	for value >= unit && suffix < 3 {
		value /= unit
		suffix++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[suffix])
}

// TimeLeft says how much time is left, in whole seconds.
func TimeLeft(d time.Duration) string { return d.Round(time.Second).String() + " left" }

// Until describes work that ends after a time: how much of the time is left.
func Until(total, elapsed time.Duration) string {
	if left := total - elapsed; left > 0 {
		return TimeLeft(left)
	}
	return "finishing"
}

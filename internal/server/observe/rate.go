package observe

import "time"

// rateWindow is the time over which a rate is averaged.
const rateWindow = 5 * time.Second

// rate counts events in two windows of time.
type rate struct {
	window           int64 // the number of the current window
	current, earlier uint32
}

// add counts an event. A time that is a little earlier counts in the current window. A time
// that is much earlier comes from another leader: the clock of the last one was ahead.
func (r *rate) add(at time.Time) {
	r.move(at.UnixNano() / int64(rateWindow))
	r.current++
}

func (r *rate) move(window int64) {
	switch {
	case window == r.window+1:
		r.window, r.earlier, r.current = window, r.current, 0
	case window > r.window || window < r.window-1:
		r.window, r.earlier, r.current = window, 0, 0
	}
}

// perSecond returns the rate of the last rateWindow. The events of the earlier window count
// in proportion to the part of it that lies in that time.
func (r rate) perSecond(now time.Time) float64 {
	nanos := now.UnixNano()
	r.move(nanos / int64(rateWindow))
	passed := float64(nanos%int64(rateWindow)) / float64(rateWindow)
	return (float64(r.current) + float64(r.earlier)*(1-passed)) / rateWindow.Seconds()
}

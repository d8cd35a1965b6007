package virtual

import (
	"context"
	"fmt"
	"time"

	"pgregory.net/rapid"
)

// fault is one fault: its kind, its target, its start relative to the previous fault and
// its duration. Other parameters are derived from random.
type fault struct {
	kind   string
	target int
	after  time.Duration
	lasts  time.Duration
	random int
}

// String formats the fault on one line.
func (f fault) String() string {
	return fmt.Sprintf("after %v %s %d for %v (%d)", f.after, f.kind, f.target, f.lasts, f.random)
}

// milliseconds draws a duration.
func milliseconds(from, to int) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.IntRange(from, to), func(n int) time.Duration { return time.Duration(n) * time.Millisecond })
}

// faultOf draws a fault of one of the kinds.
func faultOf(kinds []string, longest time.Duration) *rapid.Generator[fault] {
	return rapid.Custom(func(t *rapid.T) fault {
		return fault{
			kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
			target: rapid.IntRange(0, 9).Draw(t, "target"),
			after:  milliseconds(0, 8000).Draw(t, "after"),
			lasts:  milliseconds(0, int(longest.Milliseconds())).Draw(t, "lasts"),
			random: rapid.IntRange(0, 99).Draw(t, "random"),
		}
	})
}

// schedule starts faults one after another. Faults may overlap.
func schedule(faults []fault, begin func(f fault)) {
	ctx := context.Background()
	done := make(chan struct{})
	for _, f := range faults {
		wait(ctx, f.after)
		go func() {
			begin(f)
			done <- struct{}{}
		}()
	}
	for range faults {
		<-done
	}
}

// clientFaults are the faults of a client process.
var clientFaults = []string{"pause", "suspend", "clock-jump", "clock-rate", "clock-stop"}

// injectClient injects a fault into a process, and returns when it is over.
func injectClient(p *process, f fault) {
	ctx := context.Background()
	if f.lasts == 0 && f.kind != "clock-jump" {
		return // it has no effect
	}
	switch f.kind {
	case "pause":
		if p.pause() {
			wait(ctx, f.lasts)
			p.resume()
		}
	case "suspend": // the host sleeps: its processes are paused, and its clocks stop
		if p.pause() {
			p.clock.stop(f.random%2 == 0)
			wait(ctx, f.lasts)
			p.clock.resume()
			p.resume()
		}
	case "clock-jump":
		by := time.Duration(f.random-50) * time.Second
		p.clock.jump(by)
		p.history.count(f, p.name, by != 0)
	case "clock-rate":
		p.history.count(f, p.name, p.clock.setRate(0.2+float64(f.random)/33))
		wait(ctx, f.lasts)
		p.clock.setRate(1)
	case "clock-stop":
		p.history.count(f, p.name, p.clock.stop(true))
		wait(ctx, f.lasts)
		p.clock.resume()
	}
}

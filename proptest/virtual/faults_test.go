package virtual

import (
	"context"
	"fmt"
	"time"

	"pgregory.net/rapid"
)

// fault is one thing that goes wrong: what, when after the one before, for how
// long, and to whom. The rest of what it needs it takes from its dice.
type fault struct {
	kind   string
	target int
	after  time.Duration
	lasts  time.Duration
	dice   int
}

// String is the fault on one line, for the shortest schedule that fails.
func (f fault) String() string {
	return fmt.Sprintf("after %v %s %d for %v (%d)", f.after, f.kind, f.target, f.lasts, f.dice)
}

// milliseconds draws a time.
func milliseconds(from, to int) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.IntRange(from, to), func(n int) time.Duration { return time.Duration(n) * time.Millisecond })
}

// faultOf draws a fault of one of some kinds.
func faultOf(kinds []string, longest time.Duration) *rapid.Generator[fault] {
	return rapid.Custom(func(t *rapid.T) fault {
		return fault{
			kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
			target: rapid.IntRange(0, 9).Draw(t, "target"),
			after:  milliseconds(0, 8000).Draw(t, "after"),
			lasts:  milliseconds(0, int(longest.Milliseconds())).Draw(t, "lasts"),
			dice:   rapid.IntRange(0, 99).Draw(t, "dice"),
		}
	})
}

// schedule runs faults one after another, each beside those that last.
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

// clientFaults are what can happen to a process of either mode.
var clientFaults = []string{"pause", "suspend", "clock-jump", "clock-rate", "clock-stop"}

// strikeClient makes something happen to a process, and returns when it is over.
func strikeClient(p *process, f fault) {
	ctx := context.Background()
	if f.lasts == 0 && f.kind != "clock-jump" {
		return // it is over before anyone sees it
	}
	switch f.kind {
	case "pause":
		if p.pause() {
			wait(ctx, f.lasts)
			p.resume()
		}
	case "suspend": // the machine sleeps: its processes stand still, and all clocks but one
		if p.pause() {
			p.clock.stop(f.dice%2 == 0)
			wait(ctx, f.lasts)
			p.clock.resume()
			p.resume()
		}
	case "clock-jump":
		by := time.Duration(f.dice-50) * time.Second
		p.clock.jump(by)
		p.story.count(f, p.name, by != 0)
	case "clock-rate":
		p.story.count(f, p.name, p.clock.setRate(0.2+float64(f.dice)/33))
		wait(ctx, f.lasts)
		p.clock.setRate(1)
	case "clock-stop":
		p.story.count(f, p.name, p.clock.stop(true))
		wait(ctx, f.lasts)
		p.clock.resume()
	}
}

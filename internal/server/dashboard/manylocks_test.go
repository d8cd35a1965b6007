package dashboard_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
)

const (
	manyLocks = 10_000
	// changers is the number of goroutines that release and acquire locks.
	changers = 16
	// measureMillis is how long the page is measured.
	measureMillis = 5000
)

// The page keeps answering while 10,000 locks change. The test prints how long tasks and
// frames took, and requires only that the page has a bounded number of rows.
func TestManyLocks(t *testing.T) {
	t.Parallel()
	m := startMember(t, "n1", "")
	ctx, cancel := context.WithCancel(testserver.Context(t))
	locks, err := client.Dial(ctx, []string{m.Address()})
	require.NoError(t, err)
	var work sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		work.Wait()
		_ = locks.Close(context.Background())
	})
	changes := make([]int, changers)
	var ready sync.WaitGroup
	for i := range changers {
		ready.Add(1)
		work.Go(func() { changes[i] = change(ctx, locks, i, ready.Done) })
	}
	ready.Wait()

	p := open(t, m, "#/")
	p.until(`document.querySelectorAll(".locks tbody tr").length > 50`)
	value[bool](p, `{
		window.measured = { long: [], frames: [], updates: 0 };
		new PerformanceObserver((list) => window.measured.long.push(...list.getEntries().map((e) => e.duration)))
			.observe({ type: "longtask" });
		new MutationObserver(() => { window.measured.updates++; })
			.observe(document.querySelector(".locks tbody"), { subtree: true, childList: true, characterData: true });
		let last = performance.now();
		const start = last;
		const frame = (now) => {
			window.measured.frames.push(now - last);
			last = now;
			if (now - start < `+fmt.Sprint(measureMillis)+`) requestAnimationFrame(frame); else window.measured.done = true;
		};
		requestAnimationFrame(frame);
		true;
	}`)
	p.click("th.rate button")
	p.until(`document.querySelector("th.rate").hasAttribute("aria-sort")`)
	p.until("window.measured.done")
	require.LessOrEqual(t, len(p.rows()), 100)
	p.enter("#search", "many/0042")
	p.until(`document.querySelectorAll(".locks tbody tr").length > 0 &&
		` + namesInTable + `.every((name) => name.startsWith("many/0042"))`)
	require.Greater(t, value[float64](p, "window.measured.updates"), 3.0, "the page shows the changes")
	t.Log(value[string](p, `{
		const { long, frames, updates } = window.measured;
		frames.sort((a, b) => a - b);
		const ms = (n) => (n ?? 0).toFixed(0) + " ms";
		const [median, most] = [frames[frames.length >> 1], frames[Math.floor(frames.length * 0.99)]];
		frames.length + " frames, median " + ms(median) + ", 99 % below " + ms(most) + ", longest " + ms(frames.at(-1))
			+ "; " + long.length + " tasks above 50 ms, longest " + ms(Math.max(0, ...long))
			+ "; " + updates + " updates of the table"
	}`))
	cancel()
	work.Wait()
	total := 0
	for _, n := range changes {
		total += n
	}
	t.Logf("%d locks, %d changes", manyLocks, total)
}

// change acquires a share of the locks, and then releases and acquires them one by one
// until ctx ends. It returns the number of changes.
func change(ctx context.Context, locks *lease.Client, share int, ready func()) (changes int) {
	names := make([]fencing.Resource, 0, manyLocks/changers)
	for i := share; i < manyLocks; i += changers {
		names = append(names, fencing.Resource(fmt.Sprintf("many/%05d", i)))
	}
	held := make([]*lease.Lease, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { held[i], _ = locks.Acquire(ctx, name, lease.WithTTL(time.Hour), lease.WithHolder("worker")) })
	}
	all.Wait()
	ready()
	for i := 0; ctx.Err() == nil; i = (i + 1) % len(names) {
		if held[i] != nil && held[i].Release(ctx) != nil {
			return changes
		}
		var err error
		if held[i], err = locks.Acquire(ctx, names[i], lease.WithTTL(time.Hour),
			lease.WithHolder(fmt.Sprint("worker-", changes%7))); err != nil {
			return changes
		}
		changes++
	}
	return changes
}

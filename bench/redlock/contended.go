package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	processes  = 8
	perProcess = 16
)

// hold is one lease that a caller held.
type hold struct {
	at     int64 // nanoseconds
	caller string
}

// tally has the figures of one run of all processes. A handoff passes the lock from one
// caller to another; a caller that reacquires the lock does not count. streak is the
// longest sequence of holds in one process, and gap the longest wait of a caller (ms).
type tally struct{ handoffs, holds, least, most, none, streak, gap float64 }

// contendedKinds are the drivers that compete for one lock.
var contendedKinds = []string{"redsync", "direct"}

// contended measures 128 callers in 8 processes that compete for one lock.
func (b *bench) contended() error {
	results := map[string][]tally{}
	before := readTimes()
	for range b.rounds {
		for _, kind := range contendedKinds {
			b.measure(kind + " with one lock")
			t, err := b.contendedOnce(kind)
			if err != nil {
				return err
			}
			results[kind] = append(results[kind], t)
		}
	}
	fmt.Fprintf(b.out, "\n%d callers in %d processes, one lock; %s\n\tredsync\tdirect\tratio\n", processes*perProcess, processes, readTimes().since(before))
	row := func(what, target string, value func(t tally) float64) {
		theirs, ours := median(results["redsync"], value), median(results["direct"], value)
		fmt.Fprintf(b.out, "%s\t%.1f\t%.1f\t%s\n", what, theirs, ours, ratio(map[string]float64{"ours": ours, "theirs": theirs}, [2]string{"ours", "theirs"}, target))
	}
	row("handoffs/s", ">= 5", func(t tally) float64 { return t.handoffs })
	row("holds/s", "", func(t tally) float64 { return t.holds })
	row("fewest holds of a caller", "", func(t tally) float64 { return t.least })
	row("most holds of a caller", "", func(t tally) float64 { return t.most })
	row("callers without a hold", "", func(t tally) float64 { return t.none })
	row("longest sequence of holds in one process", "", func(t tally) float64 { return t.streak })
	row("longest time from hold to hold of a caller (ms)", "", func(t tally) float64 { return t.gap })
	return b.out.Flush()
}

// contendedOnce runs all processes once.
func (b *bench) contendedOnce(kind string) (tally, error) {
	length := max(b.length, 5*time.Second)
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		all    []hold
		failed error
	)
	for p := range processes {
		wg.Go(func() {
			holds, err := runChild(kind, b.addrs, length, p)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, holds...)
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return count(all, length), failed
}

// count sorts the holds of all processes by time; the processes share a clock.
func count(all []hold, length time.Duration) tally {
	slices.SortFunc(all, func(a, b hold) int { return cmp.Compare(a.at, b.at) })
	var t tally
	each, last := map[string]float64{}, map[string]int64{}
	streak, process := 0.0, ""
	for i, h := range all {
		each[h.caller]++
		if before, ok := last[h.caller]; ok {
			t.gap = max(t.gap, float64(h.at-before)/1e6)
		}
		last[h.caller] = h.at
		if p, _, _ := strings.Cut(h.caller, "/"); p != process {
			streak, process = 0, p
		}
		streak++
		t.streak = max(t.streak, streak)
		t.holds += 1 / length.Seconds()
		if i > 0 && all[i-1].caller != h.caller {
			t.handoffs += 1 / length.Seconds()
		}
	}
	t.none = float64(processes*perProcess - len(each))
	for _, n := range each {
		t.most = max(t.most, n)
		if t.least == 0 || n < t.least {
			t.least = n
		}
	}
	if t.none > 0 {
		t.least = 0
	}
	return t
}

// runChild runs one of the processes.
func runChild(kind string, addrs []string, length time.Duration, process int) ([]hold, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{"-child", kind, "-time", length.String()}, addrs...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("child: %w", err)
	}
	var holds []hold
	for line := range strings.Lines(string(stdout)) {
		var h hold
		if _, err := fmt.Sscan(line, &h.at, &h.caller); err != nil {
			return nil, err
		}
		h.caller = fmt.Sprint(process, "/", h.caller)
		holds = append(holds, h)
	}
	return holds, nil
}

// contend is the main function of a child: it prints the times of its callers' holds.
func contend(kind string, addrs []string, length time.Duration) error {
	redis.SetLogger(quiet{})
	d, err := newDriver(kind, addrs)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var holds [perProcess][]int64
	var wg sync.WaitGroup
	for c := range perProcess {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = d.pair(ctx, "contended", func(uint64) { holds[c] = append(holds[c], time.Now().UnixNano()) })
			}
		})
	}
	wg.Wait()
	out := bufio.NewWriter(os.Stdout)
	for c, times := range holds {
		for _, at := range times {
			fmt.Fprintln(out, at, c)
		}
	}
	d.close()
	return out.Flush()
}

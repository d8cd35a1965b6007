package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	processes  = 8
	perProcess = 16
)

// contended has 128 callers in 8 processes want one lock.
func (s settings) contended(out io.Writer, addrs []string) error {
	type result struct{ handoffs, least, most, starved float64 }
	results := map[string]result{}
	for _, kind := range []string{"redsync", "leased"} {
		var all []float64
		length := max(s.length, 5*time.Second)
		var mu sync.Mutex
		var wg sync.WaitGroup
		var failed error
		for range processes {
			wg.Go(func() {
				counts, err := runChild(kind, addrs, length)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, counts...)
				if err != nil {
					failed = err
				}
			})
		}
		wg.Wait()
		if failed != nil {
			return failed
		}
		r := result{least: all[0]}
		for _, n := range all {
			r.handoffs += n / length.Seconds()
			r.least, r.most = min(r.least, n), max(r.most, n)
			if n == 0 {
				r.starved++
			}
		}
		results[kind] = r
	}
	row := func(what, wanted string, value func(r result) float64) {
		theirs, ours := value(results["redsync"]), value(results["leased"])
		fmt.Fprintf(out, "%d callers in %d processes, %s\t%.1f\t%.1f\t%.2f\t%s\n", processes*perProcess, processes, what, theirs, ours, ours/theirs, wanted)
	}
	row("handoffs/s", ">= 5", func(r result) float64 { return r.handoffs })
	row("fewest of a caller", "", func(r result) float64 { return r.least })
	row("most of a caller", "", func(r result) float64 { return r.most })
	row("callers that got none", "0", func(r result) float64 { return r.starved })
	return nil
}

// runChild runs one of the processes and returns how often each caller held.
func runChild(kind string, addrs []string, length time.Duration) ([]float64, error) {
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
	var counts []float64
	for scan := bufio.NewScanner(strings.NewReader(string(stdout))); scan.Scan(); {
		var n float64
		if _, err := fmt.Sscan(scan.Text(), &n); err != nil {
			return nil, err
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// contend is what a child does: it prints how often each of its callers held.
func contend(kind string, addrs []string, length time.Duration) error {
	redis.SetLogger(quiet{})
	d, err := newDriver(kind, addrs)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var counts [perProcess]atomic.Int64
	var wg sync.WaitGroup
	for c := range perProcess {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = d.pair(ctx, "contended", func(uint64) { counts[c].Add(1) })
			}
		})
	}
	wg.Wait()
	for c := range counts {
		fmt.Println(counts[c].Load())
	}
	d.close()
	return nil
}

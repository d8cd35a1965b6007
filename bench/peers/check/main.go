// Command check tests how the benchmark uses ZooKeeper, Consul, Redis and PostgreSQL: it checks
// that a lock excludes, and prints what a pair costs. Run it after a change of a package in
// peers; without names it checks all targets of these services:
//
//	go run ./peers/check [-workers 16] [-time 5s] zookeeper redsync-5 ...
//
// The workers increment a number without synchronization, while they hold one lock. A lost
// increment shows that two workers held the lock at once.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/peers/consul"
	"github.com/leased-project/leased/bench/peers/etcd"
	"github.com/leased-project/leased/bench/peers/leased"
	"github.com/leased-project/leased/bench/peers/postgres"
	"github.com/leased-project/leased/bench/peers/redis"
	"github.com/leased-project/leased/bench/peers/zookeeper"
	"github.com/leased-project/leased/internal/load"
)

func main() {
	workers := flag.Int("workers", 16, "number of workers")
	warmUp := flag.Duration("warmup", time.Second, "time before each measurement")
	length := flag.Duration("time", 5*time.Second, "length of a measurement")
	clients := flag.Int("clients", 0, "number of clients (default: what users of the service have)")
	flag.Parse()
	kinds := slices.Concat(leased.Kinds(""), []peers.Kind{etcd.Kind(), zookeeper.Kind(), consul.Kind()}, redis.Kinds(), postgres.Kinds())
	for _, name := range flag.Args() {
		if !slices.ContainsFunc(kinds, func(k peers.Kind) bool { return k.Name == name }) {
			fmt.Fprintf(os.Stderr, "check: there is no target %q; 'go run . -h' lists them\n", name)
			os.Exit(2)
		}
	}
	for _, kind := range kinds {
		if flag.NArg() > 0 && !slices.Contains(flag.Args(), kind.Name) {
			continue
		}
		if err := check(kind, *workers, *clients, load.Options{WarmUp: *warmUp, Length: *length}); err != nil {
			fmt.Fprintf(os.Stderr, "check: %s: %v\n", kind.Name, err)
			os.Exit(1)
		}
	}
}

// check starts a service, and measures it with a lock for each worker and with one for all.
func check(kind peers.Kind, workers, clients int, options load.Options) error {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "leased-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	peer, err := kind.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer peer.Stop()
	fmt.Println(kind.Name, "-", peer.Version())
	if clients == 0 {
		clients = 1
		if kind.ClientPerWorker {
			clients = workers
		}
	}
	if err := measure(ctx, peer, load.Own{Workers: workers, Clients: clients}, options); err != nil {
		return err
	}
	return contended(ctx, peer, load.Contended{Workers: workers, Clients: clients}, options)
}

// contended counts the grants of one lock, with and without synchronization, and compares.
func contended(ctx context.Context, peer peers.Peer, work load.Work, options load.Options) error {
	var grants atomic.Int64
	var unsynchronized int64
	options.Granted = func(load.Grant) {
		before := unsynchronized
		runtime.Gosched() // a second holder would read the same number
		unsynchronized = before + 1
		grants.Add(1)
	}
	if err := measure(ctx, peer, work, options); err != nil {
		return err
	}
	if n := grants.Load(); n != unsynchronized {
		return fmt.Errorf("%d of %d grants overlapped with another", n-unsynchronized, n)
	}
	fmt.Printf("  no overlap in %d grants\n", unsynchronized)
	return nil
}

// measure runs the work and prints its figures.
func measure(ctx context.Context, peer peers.Peer, work load.Work, options load.Options) error {
	m := meter.New(peer.Pids)
	options.Begin, options.End = m.Begin, m.End
	result, err := load.Run(ctx, peer, work, options)
	if err != nil {
		return err
	}
	perThousand := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(max(1, result.Pairs)) }
	fmt.Printf("  %+v: %.0f pairs/s, acquire p50 %v, p99 %v, fairness %.2f, CPU ms per 1,000 pairs: servers %.1f, client %.1f; steal %.0f %%\n",
		work, result.Rate(), result.Acquire.Quantile(0.5), result.Acquire.Quantile(0.99), result.Fairness(),
		perThousand(m.Usage().Servers), perThousand(m.Usage().Client), 100*m.Usage().Steal)
	if result.Errors > 0 {
		return fmt.Errorf("%d operations failed, one of them: %s", result.Errors, result.FirstError)
	}
	return nil
}

// Command redlock measures the efficiency mode beside redsync v4, on the same
// Redis servers, in one run.
//
// What it does not tell: it runs everything on one machine, over loopback, so
// the figures are those of CPU and system calls. Only the ratios mean something
// elsewhere.
//
//	go run ./redlock [-nodes 5] [-time 3s] [-rounds 3] [-fsync]
//	go run ./redlock -instructions
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/redlockadapter"
)

type settings struct {
	nodes  int
	length time.Duration
	rounds int
	fsync  bool
	only   string
	driver string
}

func main() {
	var s settings
	flag.IntVar(&s.nodes, "nodes", 5, "how many Redis servers")
	flag.DurationVar(&s.length, "time", 3*time.Second, "how long each measurement takes")
	flag.IntVar(&s.rounds, "rounds", 3, "how often each is taken; the median counts")
	flag.BoolVar(&s.fsync, "fsync", false, "appendfsync always on all servers")
	flag.StringVar(&s.driver, "driver", "", "redsync, bare or leased: only this one")
	flag.StringVar(&s.only, "only", "", "256, 64, 1 or contended: only this row")
	counts := flag.Bool("instructions", false, "count the instructions of the scripts with valgrind instead; needs no quiet machine")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process")
	child := flag.String("child", "", "internal: contend for one lock with this driver")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "redlock:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	var err error
	switch {
	case *child != "":
		err = contend(*child, flag.Args(), s.length)
	case *counts:
		err = countInstructions(context.Background())
	default:
		err = compare(s)
	}
	if err != nil {
		pprof.StopCPUProfile()
		fmt.Fprintln(os.Stderr, "redlock:", err)
		os.Exit(1)
	}
}

// quiet keeps go-redis from printing.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func compare(s settings) error {
	redis.SetLogger(quiet{})
	servers, addrs, err := start(s)
	if err != nil {
		return err
	}
	defer func() {
		for _, server := range servers {
			server.Close()
		}
	}()
	if err := redlockadapter.Init(context.Background(), config(addrs), fencing.None); err != nil {
		return err
	}
	meter := &meter{servers: servers}
	out := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintf(out, "%d Redis servers, fsync %v, median of %d rounds of %v\n", s.nodes, s.fsync, s.rounds, s.length)
	fmt.Fprintln(out, "\tredsync\tbare\tleased\tratio\twanted")
	for _, callers := range []int{256, 64, 1} {
		if s.only != "" && s.only != fmt.Sprint(callers) {
			continue
		}
		if err := s.own(out, meter, addrs, callers); err != nil {
			return err
		}
	}
	if s.only == "" || s.only == "contended" {
		return s.contended(out, addrs)
	}
	return nil
}

func start(s settings) ([]*testserver.RedisServer, []string, error) {
	var options []testserver.RedisOption
	if s.fsync {
		options = append(options, testserver.RedisAppendOnly())
	}
	var servers []*testserver.RedisServer
	var addrs []string
	for range s.nodes {
		server, err := testserver.StartRedis(options...)
		if err != nil {
			return servers, nil, err
		}
		servers, addrs = append(servers, server), append(addrs, server.Addr)
	}
	return servers, addrs, nil
}

func config(addrs []string) redlockadapter.Config {
	var c redlockadapter.Config
	for _, addr := range addrs {
		c.Nodes = append(c.Nodes, &redis.Options{Addr: addr})
	}
	return c
}

// Command redlock compares efficiency mode with redsync v4, on the same Redis servers,
// in one run.
//
// It does not measure a network. Everything runs on one machine over loopback, so CPU
// time and system calls dominate. Only the ratios carry over to other machines, and on
// a busy machine they vary too: the steal time is printed beside them.
//
// The drivers: redsync, with its default settings; bare, one pipelined script per node
// and nothing else, as a baseline; direct, a lease.Client that connects to Redis;
// member, a lease.Client through a member of a service of three; correctness, the same
// service in correctness mode.
//
//	go run ./redlock [-nodes 5] [-time 3s] [-rounds 5] [-fsync] [-only 256,64,1,contended,memory]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/progress"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/redlockadapter"
)

type settings struct {
	nodes   int
	length  time.Duration
	rounds  int
	fsync   bool
	only    string
	driver  string
	program string
}

func main() {
	var s settings
	flag.IntVar(&s.nodes, "nodes", 5, "number of Redis servers")
	flag.DurationVar(&s.length, "time", 3*time.Second, "length of one measurement")
	flag.IntVar(&s.rounds, "rounds", 5, "number of measurements of each driver, interleaved; the median is printed")
	flag.BoolVar(&s.fsync, "fsync", false, "run all Redis servers with appendfsync always")
	flag.StringVar(&s.driver, "driver", "", "measure only these drivers, such as redsync,direct")
	flag.StringVar(&s.only, "only", "", "measure only these: 256, 64, 1 (callers), contended, memory; separated by commas")
	flag.StringVar(&s.program, "leased", "", "program of the members (default: built from this repository)")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process")
	child := flag.String("child", "", "internal: contend for one lock with this driver")
	flag.Parse()
	if err := profiled(*profile, func() error {
		if *child != "" {
			return contend(*child, flag.Args(), s.length)
		}
		return compare(s)
	}); err != nil {
		fmt.Fprintln(os.Stderr, "redlock:", err)
		os.Exit(1)
	}
}

// profiled runs do, and writes a CPU profile of it if file is not empty.
func profiled(file string, do func() error) error {
	if file == "" {
		return do()
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	err = do()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}

// quiet keeps go-redis from printing.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// chosen reports whether a name is in a list from the command line.
func chosen(list, name string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}

func compare(s settings) error {
	redis.SetLogger(quiet{})
	servers, addrs, err := start(s)
	defer func() {
		for _, server := range servers {
			server.Close()
		}
	}()
	if err != nil {
		return err
	}
	if err := redlockadapter.Init(context.Background(), config(addrs), fencing.None); err != nil {
		return err
	}
	b := &bench{settings: s, addrs: addrs, servers: servers}
	if (chosen(s.driver, "member") || chosen(s.driver, "correctness")) && (chosen(s.only, "256") || chosen(s.only, "1")) {
		if b.service, err = startService(s.program, addrs); err != nil {
			return err
		}
		defer b.service.stop()
	}
	b.out = tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintf(b.out, "%d Redis servers, fsync %v, median of %d rounds of %v\n", s.nodes, s.fsync, s.rounds, s.length)
	before := readTimes()
	err = b.run()
	fmt.Fprintf(b.out, "whole run: %s\n", readTimes().since(before))
	return errors.Join(err, b.out.Flush())
}

// bench is one run.
type bench struct {
	settings
	addrs   []string
	servers []*testserver.RedisServer
	service *service // nil if no driver needs it
	out     *tabwriter.Writer

	line           *progress.Line
	measured, plan int // numbers of measurements: completed, and of the whole run
}

// measure shows the progress before a measurement.
func (b *bench) measure(what string) {
	text := fmt.Sprintf("measurement %d of %d: %s", b.measured+1, b.plan, what)
	if left, known := (progress.Work{Done: int64(b.measured), Total: int64(b.plan), Elapsed: b.line.Elapsed()}).Left(); known {
		text += ", " + progress.TimeLeft(left)
	}
	b.line.Show(text)
	b.measured++
}

// planned returns the number of measurements of the run.
func (b *bench) planned() (n int) {
	for _, callers := range []int{256, 64, 1} {
		if chosen(b.only, fmt.Sprint(callers)) {
			n += b.rounds * len(b.kinds(callers))
		}
	}
	if chosen(b.only, "contended") {
		n += b.rounds * len(contendedKinds)
	}
	if chosen(b.only, "memory") {
		n++
	}
	return n
}

func (b *bench) run() error {
	b.line, b.plan = progress.New(os.Stderr, time.Now), b.planned()
	defer b.line.End()
	for _, callers := range []int{256, 64, 1} {
		if !chosen(b.only, fmt.Sprint(callers)) {
			continue
		}
		if err := b.own(callers); err != nil {
			return err
		}
	}
	if chosen(b.only, "contended") {
		if err := b.contended(); err != nil {
			return err
		}
	}
	if chosen(b.only, "memory") {
		return b.memory()
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

// config returns the configuration of the standalone adapter. The service uses its own
// namespace on the same servers.
func config(addrs []string) redlockadapter.Config {
	c := redlockadapter.Config{Namespace: "bench"}
	for _, addr := range addrs {
		c.Nodes = append(c.Nodes, &redis.Options{Addr: addr})
	}
	return c
}

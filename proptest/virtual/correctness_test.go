package virtual

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/proptest/property"
)

// resources are the locks of all runs.
var resources = []fencing.Resource{"a", "b"}

// workload is the processes of a run and their workers.
type workload struct {
	history   *history
	storage   *registers
	processes []*process
	connect   func(*process) (engine.Backend, error)
	policy    engine.Policy
	rename    func(property.Attempt, fencing.Token) property.Attempt // see process

	cancel context.CancelFunc
	work   sync.WaitGroup
}

// start starts processes with some workers each.
func (c *workload) start(number, workers int, h behavior, rates []float64, seed uint64) error {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	for i := range number {
		p, err := newProcess(c.history, i, rates[i%len(rates)], c.connect, c.policy)
		if err != nil {
			return err
		}
		c.add(p)
		for j := range workers {
			w := &worker{process: p, behavior: h, storage: c.storage, random: rand.New(rand.NewPCG(seed, uint64(workers*i+j)))}
			c.work.Go(func() { w.run(ctx) })
		}
	}
	return nil
}

func (c *workload) add(p *process) {
	if c.rename != nil {
		p.rename = c.rename
	}
	c.processes = append(c.processes, p)
}

// stop ends the workload.
func (c *workload) stop() {
	c.cancel()
	for _, p := range c.processes {
		p.resume()
	}
	c.work.Wait()
	for _, p := range c.processes {
		if err := p.close(); err != nil {
			c.history.broken("%v", err)
		}
	}
}

// serve checks that every lock is granted after all faults are repaired.
func (c *workload) serve() {
	c.history.record(property.Event{Kind: property.Healed})
	p, err := newProcess(c.history, len(c.processes), 1, c.connect, c.policy)
	if err != nil {
		c.history.broken("%v", err)
		return
	}
	if p.delivery = nil; c.rename != nil {
		p.rename = c.rename
	}
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	all := true
	for _, name := range append([]fencing.Resource{"unused"}, resources...) {
		l, err := p.client.Acquire(ctx, name)
		if err != nil {
			all = false
			c.history.broken("acquire %s after healing: %v", name, err)
			continue
		}
		p.over(name, l.Token())
		if err := l.Release(ctx); err != nil {
			c.history.broken("release %s after healing: %v", name, err)
		}
	}
	if all {
		c.history.record(property.Event{Kind: property.Served})
	}
	if err := p.close(); err != nil {
		c.history.broken("%v", err)
	}
}

// chosen reports whether the command line sets the number of cases.
var chosen bool

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "rapid.checks" })
	os.Exit(m.Run())
}

// checks sets the number of cases, unless the command line does: few in a plain go test,
// which may use the race detector, and more in make prop.
func checks(t *testing.T, plain, full int) {
	t.Helper()
	if chosen {
		return
	}
	n := plain
	if property.Full() {
		n = full
	}
	before := flag.Lookup("rapid.checks").Value.String()
	require.NoError(t, flag.Set("rapid.checks", strconv.Itoa(property.Budget(n))))
	t.Cleanup(func() { _ = flag.Set("rapid.checks", before) })
}

// runHistory executes one run in a bubble, checks its history, and adds its figures.
func runHistory(t *rapid.T, total *property.Report, setting string, run func(t *rapid.T, s *history)) {
	var s *history
	rapid.SyncTest(t, func(t *rapid.T) {
		s = newHistory(setting)
		run(t, s)
		wait(context.Background(), time.Minute) // time stops with the main goroutine, also for goroutines that still finish
	})
	if err := s.checkLinearizability(); err != nil {
		s.broken("%v", err)
	}
	report, failure := s.result()
	total.Add(report)
	if failure != "" {
		t.Fatalf("%s", failure)
	}
}

// publish logs and publishes the figures of a test.
func publish(t *testing.T, total property.Report) {
	t.Helper()
	t.Log(total)
	require.NoError(t, property.Publish(total))
}

// careless clients do everything wrong, except that they enter the gate before they read.
var careless = behavior{resources: resources, think: time.Second, lag: 50 * time.Millisecond, ignoresLoss: 30,
	forget: 15, lose: 3, inspect: 20}

// No fault violates a property that depends on the log or on the gate.
func TestCorrectnessUnderFaults(t *testing.T) {
	checks(t, 20, 200)
	total := property.Report{Setting: "virtual time, correctness"}
	rapid.Check(t, func(t *rapid.T) {
		runHistory(t, &total, total.Setting, func(t *rapid.T, s *history) {
			size := rapid.SampledFrom([]int{3, 3, 5}).Draw(t, "nodes")
			ttl := rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second, 10 * time.Second}).Draw(t, "ttl")
			seed := rapid.Uint64().Draw(t, "seed")
			kinds := append(append([]string{"restore"}, nodeFaults...), clientFaults...)
			faults := rapid.SliceOfN(faultOf(kinds, 12*time.Second), 4, 40).Draw(t, "faults")
			runCluster(s, size, engine.Policy{TTL: ttl}, seed, faults, careless, []float64{1, 1.02, 0.98, 1.5})
		})
	})
	publish(t, total)
}

// careful clients stop when their lease has ended.
var careful = behavior{resources: resources, think: time.Second, lag: 20 * time.Millisecond, forget: 10, inspect: 20}

// Clients that are not paused, have sound clocks and stop at the end of their lease never
// work at the same time, whatever happens to the service: a failover may prolong a lease,
// never shorten it.
func TestCorrectnessExcludes(t *testing.T) {
	checks(t, 20, 200)
	total := property.Report{Setting: "virtual time, correctness, sound clients"}
	rapid.Check(t, func(t *rapid.T) {
		runHistory(t, &total, total.Setting, func(t *rapid.T, s *history) {
			size := rapid.SampledFrom([]int{3, 3, 5}).Draw(t, "nodes")
			ttl := rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second}).Draw(t, "ttl")
			seed := rapid.Uint64().Draw(t, "seed")
			faults := rapid.SliceOfN(faultOf(nodeFaults, 12*time.Second), 4, 40).Draw(t, "faults")
			s.exclusive = true
			runCluster(s, size, engine.Policy{TTL: ttl}, seed, faults, careful, []float64{1})
		})
	})
	publish(t, total)
}

// runCluster runs a workload on a cluster under faults.
func runCluster(s *history, size int, policy engine.Policy, seed uint64, faults []fault, h behavior, rates []float64) {
	s.checker.Log = true
	c, err := startCluster(s, size, seed)
	defer c.close()
	if err != nil {
		s.broken("start: %v", err)
		return
	}
	workload := &workload{history: s, storage: newRegisters(s), policy: policy, rename: c.logObserver.name,
		connect: func(p *process) (engine.Backend, error) {
			p.delivery = &delivery{random: rand.New(rand.NewPCG(seed, uint64(p.number))), lag: 5 * time.Millisecond}
			return failoverBackend{c}, nil
		}}
	if err := workload.start(4, 2, h, rates, seed); err != nil {
		s.broken("start: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	c.work.Go(func() { c.supervise(ctx) })
	for len(faults) > 0 { // a restore happens between other faults
		n := 0
		for n < len(faults) && faults[n].kind != "restore" {
			n++
		}
		schedule(faults[:n], func(f fault) {
			if p := workload.processes[f.target%len(workload.processes)]; slices.Contains(clientFaults, f.kind) {
				injectClient(p, f)
			} else {
				c.inject(ctx, f)
			}
		})
		if n < len(faults) {
			c.restore(ctx, faults[n].lasts)
			n++
		}
		faults = faults[n:]
	}
	workload.stop()
	workload.serve()
	workload.storage.found(resources)
	if err := c.agree(ctx); err != nil {
		s.broken("%v", err)
	}
}

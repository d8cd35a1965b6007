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

// resources of all runs.
var resources = []fencing.Resource{"a", "b"}

// crew is the processes of a run and their workers.
type crew struct {
	story     *story
	storage   *registers
	processes []*process
	connect   func(*process) (engine.Backend, error)
	policy    engine.Policy
	rename    func(property.Attempt, fencing.Token) property.Attempt // see process

	cancel context.CancelFunc
	work   sync.WaitGroup
}

// start puts processes to work, each with some hands.
func (c *crew) start(number, hands int, h habits, rates []float64, seed uint64) error {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	for i := range number {
		p, err := newProcess(c.story, i, rates[i%len(rates)], c.connect, c.policy)
		if err != nil {
			return err
		}
		c.add(p)
		for j := range hands {
			w := &worker{process: p, habits: h, storage: c.storage, dice: rand.New(rand.NewPCG(seed, uint64(hands*i+j)))}
			c.work.Go(func() { w.run(ctx) })
		}
	}
	return nil
}

func (c *crew) add(p *process) {
	if c.rename != nil {
		p.rename = c.rename
	}
	c.processes = append(c.processes, p)
}

// stop ends the work.
func (c *crew) stop() {
	c.cancel()
	for _, p := range c.processes {
		p.resume()
	}
	c.work.Wait()
	for _, p := range c.processes {
		if err := p.close(); err != nil {
			c.story.broken("%v", err)
		}
	}
}

// serve shows that every lock can be had once nothing is broken any more.
func (c *crew) serve() {
	c.story.tell(property.Event{Kind: property.Healed})
	p, err := newProcess(c.story, len(c.processes), 1, c.connect, c.policy)
	if err != nil {
		c.story.broken("%v", err)
		return
	}
	if p.post = nil; c.rename != nil {
		p.rename = c.rename
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all := true
	for _, name := range append([]fencing.Resource{"unused"}, resources...) {
		l, err := p.client.Acquire(ctx, name)
		if err != nil {
			all = false
			c.story.broken("%s cannot be had after healing: %v", name, err)
			continue
		}
		p.over(name, l.Token())
		if err := l.Release(ctx); err != nil {
			c.story.broken("%s cannot be released after healing: %v", name, err)
		}
	}
	if all {
		c.story.tell(property.Event{Kind: property.Served})
	}
	if err := p.close(); err != nil {
		c.story.broken("%v", err)
	}
}

// chosen: the command line says how many cases there are.
var chosen bool

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "rapid.checks" })
	os.Exit(m.Run())
}

// checks sets how many cases rapid makes, unless the command line does: few in
// a plain go test, which has the race detector, and more where a report is
// asked for.
func checks(t *testing.T, plain, full int) {
	t.Helper()
	if chosen {
		return
	}
	n := plain
	if os.Getenv(property.ReportVariable) != "" {
		n = full
	}
	before := flag.Lookup("rapid.checks").Value.String()
	require.NoError(t, flag.Set("rapid.checks", strconv.Itoa(property.Budget(n))))
	t.Cleanup(func() { _ = flag.Set("rapid.checks", before) })
}

// history runs one history in a bubble, judges it, and adds its figures.
func history(t *rapid.T, total *property.Report, setting string, run func(t *rapid.T, s *story)) {
	var s *story
	rapid.SyncTest(t, func(t *rapid.T) {
		s = newStory(setting)
		run(t, s)
		wait(context.Background(), time.Minute) // with the main goroutine time ends, also for those who only finish
	})
	if err := s.secondOpinion(); err != nil {
		s.broken("%v", err)
	}
	report, wrong := s.verdict()
	total.Add(report)
	if wrong != "" {
		t.Fatalf("%s", wrong)
	}
}

// publish prints the figures of a test.
func publish(t *testing.T, total property.Report) {
	t.Helper()
	t.Log(total)
	require.NoError(t, property.Publish(total))
}

// rough are the habits of those who do everything wrong but one thing: they
// enter the gate before they read.
var rough = habits{resources: resources, think: time.Second, lag: 50 * time.Millisecond, stubborn: 30, forget: 15, lose: 3, inspect: 20}

// Everything may happen: no promise that rests on the log or on the gate is
// broken by it.
func TestCorrectnessUnderFaults(t *testing.T) {
	checks(t, 20, 350)
	total := property.Report{Setting: "virtual time, correctness"}
	rapid.Check(t, func(t *rapid.T) {
		history(t, &total, total.Setting, func(t *rapid.T, s *story) {
			size := rapid.SampledFrom([]int{3, 3, 5}).Draw(t, "nodes")
			ttl := rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second, 10 * time.Second}).Draw(t, "ttl")
			seed := rapid.Uint64().Draw(t, "seed")
			kinds := append(append([]string{"restore"}, nodeFaults...), clientFaults...)
			faults := rapid.SliceOfN(faultOf(kinds, 12*time.Second), 4, 40).Draw(t, "faults")
			runCluster(s, size, engine.Policy{TTL: ttl}, seed, faults, rough, []float64{1, 1.02, 0.98, 1.5})
		})
	})
	publish(t, total)
}

// careful are the habits of those who stop when their lease has ended.
var careful = habits{resources: resources, think: time.Second, lag: 20 * time.Millisecond, forget: 10, inspect: 20}

// Clients whose clocks run with the service's, that are not paused and stop when
// they are told, never work side by side, whatever happens to the service: a
// failover may make a lease longer, never shorter.
func TestCorrectnessExcludes(t *testing.T) {
	checks(t, 20, 350)
	total := property.Report{Setting: "virtual time, correctness, sound clients"}
	rapid.Check(t, func(t *rapid.T) {
		history(t, &total, total.Setting, func(t *rapid.T, s *story) {
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

// runCluster lets a crew work on a cluster while faults happen.
func runCluster(s *story, size int, policy engine.Policy, seed uint64, faults []fault, h habits, rates []float64) {
	s.checker.Log = true
	c, err := startCluster(s, size, seed)
	defer c.close()
	if err != nil {
		s.broken("start: %v", err)
		return
	}
	crew := &crew{story: s, storage: newRegisters(s), policy: policy, rename: c.witness.name,
		connect: func(p *process) (engine.Backend, error) {
			p.post = &post{dice: rand.New(rand.NewPCG(seed, uint64(p.number))), lag: 5 * time.Millisecond}
			return front{c}, nil
		}}
	if err := crew.start(4, 2, h, rates, seed); err != nil {
		s.broken("start: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	c.work.Go(func() { c.supervise(ctx) })
	for len(faults) > 0 { // a restore is done while nothing else is broken
		n := 0
		for n < len(faults) && faults[n].kind != "restore" {
			n++
		}
		schedule(faults[:n], func(f fault) {
			if p := crew.processes[f.target%len(crew.processes)]; slices.Contains(clientFaults, f.kind) {
				strikeClient(p, f)
			} else {
				c.strike(ctx, f)
			}
		})
		if n < len(faults) {
			c.restore(ctx, faults[n].lasts)
			n++
		}
		faults = faults[n:]
	}
	crew.stop()
	crew.serve()
	crew.storage.found(resources)
	if err := c.agree(ctx); err != nil {
		s.broken("%v", err)
	}
}

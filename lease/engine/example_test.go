package engine_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/memory"
)

// countedBackend counts the grants of another backend.
type countedBackend struct {
	engine.Backend
	grants int
}

// Open wraps the session of the other backend.
func (b *countedBackend) Open(ctx context.Context, config engine.SessionConfig) (engine.Session, error) {
	s, err := b.Backend.Open(ctx, config)
	return &countedSession{s, b}, err
}

type countedSession struct {
	engine.Session
	backend *countedBackend
}

// Acquire counts what the other session grants.
func (s *countedSession) Acquire(ctx context.Context, request engine.Request) (engine.Grant, error) {
	grant, err := s.Session.Acquire(ctx, request)
	if err == nil {
		s.backend.grants++
	}
	return grant, err
}

// A Backend can wrap another one.
func ExampleBackend() {
	ctx := context.Background()
	locks, err := memory.New()
	if err != nil {
		log.Fatal(err)
	}
	counted := &countedBackend{Backend: locks}
	c, err := lease.New(counted)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	for range 3 {
		if err := c.Do(ctx, "job", func(context.Context, *lease.Lease) error { return nil }); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(counted.grants, "grants")
	// Output: 3 grants
}

// The policy with the longest matching prefix applies. Filled derives the timings that
// it leaves open.
func ExamplePolicies() {
	policies, err := engine.NewPolicies(
		engine.Policy{Prefix: "report/", Mode: engine.Efficiency},
		engine.Policy{Prefix: "report/monthly/", Mode: engine.Correctness, TTL: time.Minute},
	)
	if err != nil {
		log.Fatal(err)
	}
	p := policies.Match("report/monthly/7").Filled()
	fmt.Println(p.Mode, p.TTL, p.Renew, p.Drift)
	// Output: correctness 1m0s 20s 602ms
}

// Route decides which mode serves a request.
func ExampleTopology_Route() {
	policies, err := engine.NewPolicies(engine.Policy{Prefix: "report/", Mode: engine.Correctness,
		Next: engine.Efficiency})
	if err != nil {
		log.Fatal(err)
	}
	topology := engine.Topology{Version: 3, Policies: policies, Ready: true}
	fmt.Println(topology.Route(&engine.Request{Resources: engine.SortedSet([]fencing.Resource{"b", "a"})}))
	_, err = topology.Route(&engine.Request{Resources: []fencing.Resource{"report/7"}})
	fmt.Println(err)
	// Output:
	// correctness <nil>
	// lock "report/7" is migrating from correctness to efficiency mode; try again when the migration is complete, see 'leased policy show'
}

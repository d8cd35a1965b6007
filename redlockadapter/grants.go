package redlockadapter

import (
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// grants has the leases that this process was granted and has not released.
type grants struct {
	mu     sync.Mutex
	byName map[string]*attempt
	newest fencing.Token // the largest token that this process was granted
}

func (g *grants) add(a *attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.byName[a.Name], g.newest = a, max(g.newest, a.Token)
}

func (g *grants) newestToken() fencing.Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.newest
}

// find returns a grant, nil if there is none.
func (g *grants) find(name string) *attempt {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byName[name]
}

// take removes a grant and returns it, nil if there is none.
func (g *grants) take(name string) *attempt {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.byName[name]
	delete(g.byName, name)
	return a
}

// renewed records when a grant was renewed.
func (g *grants) renewed(name string, now engine.Instant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.byName[name]; a != nil {
		a.renewed = now
	}
}

// expire removes and returns the grants that were not renewed for twice their TTL.
func (g *grants) expire(now engine.Instant) (expired []*attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, a := range g.byName {
		if now.Since(a.renewed) > 2*a.TTL {
			expired = append(expired, a)
			delete(g.byName, name)
		}
	}
	return expired
}

//go:build linux

package torture

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/proptest/property"
)

const (
	// gapLimit bounds the time without a grant in efficiency mode while there is no
	// leader: clients that go through members must find the last one.
	gapLimit    = 15 * time.Second
	gapProperty = "locks in efficiency mode are granted without a leader"
	// recoveryLimit bounds the recovery of the efficiency mode after all nodes were
	// emptied.
	recoveryLimit    = time.Minute
	recoveryProperty = "the efficiency mode recovers after all Redis nodes lost their state"
)

// Routes has the figures of locks in efficiency mode by the route of the request: directly
// to Redis, or through a member.
type Routes struct{ Direct, Member Route }

// Route has the figures of one route.
type Route struct {
	Grants int
	// Gap is the longest time without a grant.
	Gap time.Duration
}

// grants counts grants in efficiency mode while watched.
type grants struct {
	mu       sync.Mutex
	watched  bool
	routes   [2]Route // directly, and through a member
	last     [2]time.Duration
	lastSeen time.Duration // of any route, counted or not
}

// see takes the event of a grant in efficiency mode.
func (g *grants) see(e property.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastSeen = max(g.lastSeen, e.At)
	if g.watched {
		route := 0
		if throughMember(e.Who) {
			route = 1
		}
		g.routes[route].Grants++
		g.routes[route].Gap = max(g.routes[route].Gap, e.At-g.last[route])
		g.last[route] = max(g.last[route], e.At)
	}
}

// watch starts counting.
func (g *grants) watch(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watched, g.routes, g.last = true, [2]Route{}, [2]time.Duration{now, now}
}

// end stops counting.
func (g *grants) end(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watched = false
	for i := range g.routes {
		g.routes[i].Gap = max(g.routes[i].Gap, now-g.last[i])
	}
}

// since reports whether a lock was granted after a time.
func (g *grants) since(at time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lastSeen > at
}

// figures returns the figures of the last count.
func (g *grants) figures() Routes {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Routes{Direct: g.routes[0], Member: g.routes[1]}
}

// leaderless kills the leader and pauses another member for the whole duration. A paused
// member accepts connections but does not answer.
func (n *nemesis) leaderless(ctx context.Context) {
	if !until(ctx, startLimit, func() bool { return n.grants.since(0) }) {
		return
	}
	var killed *member
	if !until(ctx, startLimit, func() bool { killed = n.world.leader(ctx); return killed != nil }) { // after an election
		if ctx.Err() == nil {
			n.fail(fmt.Errorf("no leader was found within %v", startLimit))
		}
		return
	}
	stopped := n.world.members[(killed.number+1)%len(n.world.members)]
	killed.process.Kill()
	n.report(killed.who(), "member killed")
	n.pause(ctx, stopped.who(), "member paused", n.world.config.Duration, func() {
		stopped.process.Pause()
		n.grants.watch(n.world.now())
	}, func() {
		n.grants.end(n.world.now())
		stopped.process.Resume()
	})
	if ctx.Err() != nil {
		return
	}
	routes := n.grants.figures()
	for name, route := range map[string]Route{"directly": routes.Direct, "through a member": routes.Member} {
		if route.Grants == 0 || route.Gap > gapLimit {
			n.violate(fmt.Sprintf("%s: %s, %d were granted in %v, with a gap of %v", gapProperty, name, route.Grants,
				n.world.config.Duration, route.Gap))
		}
	}
}

// emptyRepeatedly empties all Redis nodes at once, for the duration and at least
// LeastEmptied times. It waits each time until locks are granted again.
func (n *nemesis) emptyRepeatedly(ctx context.Context) {
	n.grants.watch(n.world.now())
	end := n.world.now() + n.world.config.Duration
	for i := 0; i < LeastEmptied || n.world.now() < end; i++ {
		if !until(ctx, startLimit, func() bool { return n.grants.since(0) }) || !wait(ctx, 3*time.Second) {
			return
		}
		n.emptyAll(ctx)
		emptied := n.world.now()
		if !until(ctx, recoveryLimit, func() bool { return n.grants.since(emptied) }) && ctx.Err() == nil {
			n.violate(fmt.Sprintf("%s: nothing was granted for %v", recoveryProperty, recoveryLimit))
			return
		}
	}
	n.grants.end(n.world.now())
}

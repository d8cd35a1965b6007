//go:build linux

package torture

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/leased-project/leased/proptest/property"
)

const (
	// gapLimit is how long no lock in efficiency mode may be granted while there is
	// no leader: the clients that go through members have to find the last one.
	gapLimit = 15 * time.Second
	gapEnds  = "locks in efficiency mode are granted without a leader"
	// comesBack is how long the efficiency mode may take to come back after all
	// nodes were emptied.
	comesBack = time.Minute
	backAgain = "the efficiency mode comes back after all Redis nodes lost their state"
)

// Ways are the figures of locks in efficiency mode by the way of the request:
// straight to Redis, or through a member.
type Ways struct{ Direct, Member Way }

// Way is one of them.
type Way struct {
	Grants int
	// Gap is the longest time without a grant.
	Gap time.Duration
}

// grants counts grants of locks in efficiency mode while it is watched.
type grants struct {
	throughMember func(who string) bool

	mu       sync.Mutex
	watched  bool
	ways     [2]Way
	last     [2]time.Duration
	lastSeen time.Duration // of any way, watched or not
}

// see takes the event of a grant in efficiency mode.
func (g *grants) see(e property.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastSeen = max(g.lastSeen, e.At)
	if g.watched {
		way := g.way(e.Who)
		g.ways[way].Grants++
		g.ways[way].Gap = max(g.ways[way].Gap, e.At-g.last[way])
		g.last[way] = max(g.last[way], e.At)
	}
}

func (g *grants) way(who string) int {
	if g.throughMember != nil && g.throughMember(who) {
		return 1
	}
	return 0
}

// watch begins to count.
func (g *grants) watch(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watched, g.ways, g.last = true, [2]Way{}, [2]time.Duration{now, now}
}

// end stops to count and returns the figures.
func (g *grants) end(now time.Duration) Ways {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watched = false
	for i := range g.ways {
		g.ways[i].Gap = max(g.ways[i].Gap, now-g.last[i])
	}
	return Ways{Direct: g.ways[0], Member: g.ways[1]}
}

// since reports whether a lock was granted after a time.
func (g *grants) since(at time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lastSeen > at
}

// figures are those of the scenarios with one fault.
func (g *grants) figures() Ways {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Ways{Direct: g.ways[0], Member: g.ways[1]}
}

// leaderless kills the leader and stops another member for the whole duration. A
// member that is stopped accepts connections and answers nothing.
func (n *nemesis) leaderless(ctx context.Context) {
	if !until(ctx, startLimit, func() bool { return n.grants.since(0) }) {
		return
	}
	killed := n.world.leader(ctx)
	if killed == nil {
		n.wrong(fmt.Errorf("no member leads"))
		return
	}
	stopped := n.world.members[(killed.number+1)%len(n.world.members)]
	killed.process.kill()
	n.report(killed.who(), "member killed")
	n.paused(stopped.who(), "member paused")
	stopped.process.signal(syscall.SIGSTOP)
	n.grants.watch(n.world.now())
	wait(ctx, n.world.config.Duration)
	ways := n.grants.end(n.world.now())
	n.resumed(stopped.who())
	stopped.process.signal(syscall.SIGCONT)
	if ctx.Err() != nil {
		return
	}
	for name, way := range map[string]Way{"directly": ways.Direct, "through a member": ways.Member} {
		if way.Grants == 0 || way.Gap > gapLimit {
			n.broken(fmt.Sprintf("%s: %s %d were granted in %v, and none for %v", gapEnds, name, way.Grants, n.world.config.Duration, way.Gap))
		}
	}
}

// emptyAgain empties all Redis nodes at once for as long as the duration says, and
// often enough. Each time it waits until locks are granted again.
func (n *nemesis) emptyAgain(ctx context.Context) {
	n.grants.watch(n.world.now())
	end := n.world.now() + n.world.config.Duration
	for i := 0; i < LeastEmptied || n.world.now() < end; i++ {
		if !until(ctx, startLimit, func() bool { return n.grants.since(0) }) || !wait(ctx, 3*time.Second) {
			return
		}
		n.emptyAll(ctx)
		emptied := n.world.now()
		if !until(ctx, comesBack, func() bool { return n.grants.since(emptied) }) && ctx.Err() == nil {
			n.broken(fmt.Sprintf("%s: nothing was granted for %v", backAgain, comesBack))
			return
		}
	}
	n.grants.end(n.world.now())
}

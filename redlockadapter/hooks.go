package redlockadapter

import (
	"context"
	"errors"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// maxExpiredChecks bounds the expired leases that one check looks up.
const maxExpiredChecks = 256

// Hooks are called while a Backend works, for metrics. They must return at once. A nil
// hook costs nothing.
type Hooks struct {
	// Node returns the hooks of one node. It is called when the Backend is created.
	Node func(address string) NodeHooks
	// Outdated is called when the nodes have seen a newer version than that of Config.Topology.
	Outdated func()
	// HandedOff is called when a caller of this process gets a lock that another caller of
	// this process has released. took is the time since the release arrived. Handoffs
	// from another process are not reported.
	HandedOff func(took time.Duration)
	// Expired is called for a lease of this process that ended because nobody renewed or
	// released it, about one TTL after its end.
	Expired func(engine.Held)
}

// NodeHooks are called while one node is used.
type NodeHooks struct {
	// Replied is called when the node has answered a batch of requests. took is the
	// time since the batch was sent.
	Replied func(took time.Duration)
	// Refused is called with the number of requests that the node answered with an
	// error, or not at all. A vote against an attempt is not an error.
	Refused func(requests int)
}

// NodesSeen returns the status of the nodes as the last periodic check saw it, without
// asking them. It is nil before the first check.
func (b *Backend) NodesSeen() []NodeStatus {
	b.keeper.mu.Lock()
	defer b.keeper.mu.Unlock()
	return b.keeper.last
}

// reportExpired calls Expired for the leases that have expired. Another process renewed or
// ended the rest. It returns the leases whose nodes did not answer, to be reported later.
func (b *Backend) reportExpired(ctx context.Context, grants []*attempt) (later []*attempt) {
	if b.config.Hooks.Expired == nil {
		return nil
	}
	for _, a := range grants[:min(len(grants), maxExpiredChecks)] {
		_, err := b.Find(ctx, a.Resources[0], a.Token)
		if err == nil {
			continue
		}
		how := ""
		if errors.Is(err, engine.ErrNotHeld) {
			how, err = b.Ended(ctx, a.Resources[0], a.Session, a.Nonce)
		}
		switch {
		case err != nil:
			later = append(later, a)
		case how == "expired":
			b.config.Hooks.Expired(a.Held)
		}
	}
	return later
}

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

const (
	// votesAge is how old the count of votes may be that Health uses.
	votesAge = time.Second
	// votesTime bounds one count.
	votesTime = 2 * time.Second
)

// voting is the last count of the Redis nodes that vote.
type voting struct {
	mu      sync.Mutex
	counted bool
	at      engine.Instant
	missing string
}

// votesMissing says that fewer than a quorum of the Redis nodes vote, "" if enough
// do or there are none.
func (a *admin) votesMissing(ctx context.Context) string {
	fleet := a.router.node.Topology().Fleet
	if fleet.IsZero() {
		return ""
	}
	backend, err := a.router.redis.Backend()
	if err != nil {
		return fmt.Sprintf("fewer than %d of %d Redis nodes can be used, see 'leased redis status'", len(fleet.Addresses)/2+1, len(fleet.Addresses))
	}
	v := &a.voting
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := a.router.clock.Now(); !v.counted || now.Since(v.at) > votesAge {
		// The count is for other callers too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), votesTime)
		defer cancel()
		v.counted, v.at, v.missing = true, now, missingVotes(redisNodes(ctx, backend))
	}
	return v.missing
}

// missingVotes says that fewer than a quorum of the nodes vote, "" if enough do.
func missingVotes(nodes []*pb.RedisNode) string {
	votes := 0
	for _, n := range nodes {
		if n.Error == "" && !n.Empty {
			votes++
		}
	}
	if quorum := len(nodes)/2 + 1; votes < quorum {
		return fmt.Sprintf("%d of %d Redis nodes vote, %d are needed", votes, len(nodes), quorum)
	}
	return ""
}

// eachNode asks the nodes of a fleet that cannot be connected to as a whole, one by
// one: each has an answer or an error of its own.
func (a *admin) eachNode(ctx context.Context, fleet engine.Fleet) []*pb.RedisNode {
	nodes := make([]*pb.RedisNode, len(fleet.Addresses))
	var asked sync.WaitGroup
	for i, address := range fleet.Addresses {
		asked.Go(func() {
			alone := engine.Fleet{Namespace: fleet.Namespace, MaxTTL: fleet.MaxTTL, Addresses: []string{address}}
			backend, err := a.connect(ctx, alone)
			if err != nil {
				nodes[i] = &pb.RedisNode{Address: address, Error: ownError(address, err)}
				return
			}
			defer closeBackend(ctx, backend)
			nodes[i] = redisNodes(ctx, backend)[0]
		})
	}
	asked.Wait()
	return nodes
}

// connect connects to a fleet that need not be the one of the topology, to look at
// it. Nothing is granted there, and no node is recovered.
func (a *admin) connect(ctx context.Context, fleet engine.Fleet) (*redlockadapter.Backend, error) {
	config := redlockadapter.Config{Namespace: fleet.Namespace, MaxTTL: fleet.MaxTTL, Logger: slog.New(slog.DiscardHandler),
		Topology: func() engine.Topology { return engine.Topology{Fleet: fleet} }}
	for _, address := range fleet.Addresses {
		config.Nodes = append(config.Nodes, a.config.RedisOptions(address))
	}
	return redlockadapter.New(ctx, config)
}

func closeBackend(ctx context.Context, backend *redlockadapter.Backend) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	_ = backend.Close(ctx) // nothing was acquired with it
}

// tryFleet refuses a fleet of which no quorum can be used, before the present one
// is stopped for it.
func (a *admin) tryFleet(ctx context.Context, fleet engine.Fleet) error {
	backend, err := a.connect(ctx, fleet)
	if err == nil {
		closeBackend(ctx, backend)
		return nil
	}
	refused := fmt.Errorf("the new Redis nodes cannot be used, so nothing was changed (force changes the fleet anyway): %s", oneLine(err))
	if errors.Is(err, redlockadapter.ErrNodeSetup) {
		return &invalidError{refused}
	}
	return fmt.Errorf("%w: %w", engine.ErrUnavailable, refused)
}

// ownError is the error of one node in short: without what is said about fleets,
// and without its address, which stands beside it.
func ownError(address string, err error) string {
	text := oneLine(err)
	if _, own, found := strings.Cut(text, "see 'leased redis status': "); found {
		text = own
	}
	for _, known := range []string{address + ": ", address + ": ", "node is unreachable; ", "connect to " + address + ": "} {
		text = strings.TrimPrefix(text, known)
	}
	return text
}

// oneLine is the text of an error, also of one that joins others, in one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

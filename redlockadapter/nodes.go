package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/recovery"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// NodeStatus is the state of one node, as this process sees it.
type NodeStatus struct {
	Addr string
	// Err is why the node did not report. The other fields are then zero.
	Err error
	// Node has the state that the node stores about itself.
	recovery.Node
	// Skew is the time by which the node's clock is ahead of the local one, beyond the
	// round trip.
	Skew time.Duration
}

// each calls f for every node in parallel and returns when all calls have returned.
func (b *Backend) each(f func(i int, n *redisconn.Conn)) {
	var wg sync.WaitGroup
	for i, n := range b.nodes {
		wg.Go(func() { f(i, n) })
	}
	wg.Wait()
}

// sendAll sends a request to every node.
func (b *Backend) sendAll(r *redisconn.Request) {
	b.sendTo(quorum.All(len(b.nodes)), r)
}

// sendTo sends a request to some nodes.
func (b *Backend) sendTo(nodes quorum.Nodes, r *redisconn.Request) {
	for node := range nodes.Each {
		b.nodes[node].Send(r)
	}
}

// NodeStatuses asks every node for its status, in the order of Config.Nodes.
func (b *Backend) NodeStatuses(ctx context.Context) []NodeStatus {
	ctx, cancel := context.WithTimeout(ctx, 4*b.config.NodeTimeout)
	defer cancel()
	all := make([]NodeStatus, len(b.nodes))
	b.each(func(i int, n *redisconn.Conn) { all[i] = b.nodeStatus(ctx, n) })
	return all
}

func (b *Backend) nodeStatus(ctx context.Context, n *redisconn.Conn) NodeStatus {
	before := b.clock.Now().Time()
	r, err := scripts.Report(ctx, n, b.namespace)
	after := b.clock.Now().Time()
	if err != nil {
		return NodeStatus{Addr: n.Addr(), Err: err}
	}
	s := NodeStatus{Addr: n.Addr(), Node: recovery.Node{Report: r.Report, Joining: r.Join},
		Skew: redisconn.Skew(r.Clock, before, after)}
	if r.Join != "" {
		s.Joined = r.Joined
		s.Quarantine = recovery.QuarantineLeft(b.config.MaxTTL, r.Waited, r.Joined, b.config.joinGap())
	}
	return s
}

// reports returns the reports in statuses.
func reports(statuses []NodeStatus) []recovery.Report {
	all := make([]recovery.Report, len(statuses))
	for i, s := range statuses {
		all[i] = s.Report
	}
	return all
}

// The calls of a service name the server run that they are for, as the server reported it.
// A call fails if the address of the node leads to another run.

// Join puts a join nonce on a node, and replaces any other. Only the range that is assigned
// to this nonce can initialise the node, after a quarantine that starts now.
func (b *Backend) Join(ctx context.Context, node int, server, join string, version uint64) error {
	return b.join(ctx, node, server, scripts.Join{Nonce: join, Version: version})
}

// Rejoin repeats the join nonce of a node. Its quarantine starts again if it was not
// repeated for some seconds.
func (b *Backend) Rejoin(ctx context.Context, node int, server, join string, version uint64) error {
	return b.join(ctx, node, server, scripts.Join{Nonce: join, Version: version, Gap: b.config.joinGap()})
}

func (b *Backend) join(ctx context.Context, node int, server string, join scripts.Join) error {
	join.Fleet, join.Again = b.fingerprint, true
	return join.Put(ctx, b.at(node, server))
}

// Initialise makes a node a voter. wait is above 0 while the node is in quarantine.
func (b *Backend) Initialise(ctx context.Context, node int, server string, r recovery.Range) (wait time.Duration,
	err error) {
	return scripts.Init(ctx, b.at(node, server), b.fingerprint, r)
}

// Advance raises a node to a goal. Nothing is ever lowered.
func (b *Backend) Advance(ctx context.Context, node int, server string, goal recovery.Goal) error {
	return scripts.Advance(ctx, b.at(node, server), goal)
}

func (b *Backend) at(node int, server string) scripts.Node { return b.nodes[node].At(server) }

// Sweep removes the data of former lives of the servers, and the records of locks that
// were not used for Config.IdleCounters.
func (b *Backend) Sweep(ctx context.Context) error {
	errs := make([]error, len(b.nodes))
	b.each(func(i int, n *redisconn.Conn) { errs[i] = scripts.Sweep(ctx, n, b.namespace, b.config.IdleCounters) })
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

// quorumError explains why fewer than a quorum of the nodes succeeded. errs has an entry
// for each node.
func (b *Backend) quorumError(errs []error) error {
	n := 0
	for i, err := range errs {
		if err == nil {
			n++
		} else if why := b.keeper.log.waiting(i); errors.Is(err, scripts.ErrEmpty) && why != nil {
			errs[i] = fmt.Errorf("%w: %w", err, why)
		}
	}
	reasons := b.nodesError(errs)
	agreed := fmt.Sprintf("%d of %d Redis nodes agreed, %d are needed", n, len(b.nodes), b.quorum)
	switch {
	case b.config.Topology != nil:
		return fmt.Errorf("%w: %s; see 'leased redis status': %w", engine.ErrUnavailable, agreed, reasons)
	case b.stateIsLost():
		return fmt.Errorf("%w: %s: %w", b.noStateError(), agreed, reasons)
	}
	return fmt.Errorf("%w: %s: %w", engine.ErrUnavailable, agreed, reasons)
}

// noStateError is ErrNoState with the command that an operator needs.
func (b *Backend) noStateError() error {
	granted := ""
	if newest := b.grants.newestToken(); newest > 0 {
		granted = fmt.Sprintf("; this process was granted tokens up to %d", newest)
	}
	return fmt.Errorf("%w; run '%s', which says how to choose a floor above every token that was ever granted%s",
		ErrNoState, b.initCommand(), granted)
}

// initCommand returns the command that initialises the nodes.
func (b *Backend) initCommand() string {
	command := "leased redis init --redis " + strings.Join(b.config.fleet().Addresses, ",")
	if b.config.Namespace != DefaultNamespace {
		command += " --redis-namespace " + b.config.Namespace
	}
	if b.config.MaxTTL != DefaultMaxTTL {
		command += " --redis-max-ttl " + b.config.MaxTTL.String()
	}
	return command
}

// nodesError returns the failures in errs, which has an entry for each node, in one line that names each node once.
func (b *Backend) nodesError(errs []error) error {
	nodes := map[string][]string{}
	var reasons []string
	for i, err := range errs {
		if err == nil {
			continue
		}
		reason := shortReason(err, b.nodes[i].Addr())
		if nodes[reason] == nil {
			reasons = append(reasons, reason)
		}
		nodes[reason] = append(nodes[reason], b.nodes[i].Addr())
	}
	for i, reason := range reasons {
		reasons[i] = strings.Join(nodes[reason], ", ") + ": " + reason
	}
	return engine.Special(strings.Join(reasons, "; "), errors.Join(errs...))
}

// shortReason returns the text of an error of a node in one line, without the address of the node.
func shortReason(err error, address string) string {
	var network *net.OpError
	if errors.As(err, &network) && errors.Is(err, redisconn.ErrDown) {
		return fmt.Sprintf("%v: %v", redisconn.ErrDown, network.Err)
	}
	text := strings.ReplaceAll(err.Error(), "\n", ": ")
	return strings.ReplaceAll(text, address+": ", "")
}

// outdated returns the refusal of nodes that have seen a newer version, and tells the keeper and the caller's hook.
func (b *Backend) outdated() error {
	b.keeper.notify()
	if b.config.Hooks.Outdated != nil {
		b.config.Hooks.Outdated()
	}
	return b.versionError()
}

// versionError is the refusal of nodes that have seen a newer version.
func (b *Backend) versionError() error {
	if b.config.Topology != nil {
		return engine.ErrVersion
	}
	return fmt.Errorf("%w: the Redis nodes of namespace %q belong to a service, which assigns their tokens; use the "+
		"service, or another namespace",
		engine.ErrUnavailable, b.config.Namespace)
}

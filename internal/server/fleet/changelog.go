package fleet

import (
	"log/slog"

	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// nodeState is what the leader last logged, or would have logged, about a Redis node.
type nodeState uint8

const (
	unknown nodeState = iota
	votes
	empty      // it has no state
	quarantine // it has a join nonce and waits
)

// stateOf returns the state of a node that answered.
func stateOf(goal recovery.Goal, i int, n recovery.Node) nodeState {
	switch {
	case goal.Next(i, n.Report) != recovery.Recover:
		return votes
	case n.Joining != "" && n.Quarantine > 0:
		return quarantine
	}
	return empty
}

// report logs the nodes that have changed since the last step. Each member logs by itself
// which nodes it cannot reach.
func (k *Keeper) report(state machine.Efficiency, nodes []recovery.Node) {
	goal := Goal(state)
	for i, address := range state.Fleet.Addresses {
		if !nodes[i].Reached {
			continue // an unreachable node may still vote
		}
		before, now := k.nodes[address], stateOf(goal, i, nodes[i])
		k.nodes[address] = now
		if before == unknown || before == now {
			continue // unknown: this member leads since a moment ago
		}
		switch {
		case now == votes:
			k.logger.Info("Redis node votes again", "node", address, "floor", uint64(nodes[i].Live.Floor), "quarantined",
				before == quarantine)
		case now == quarantine:
			k.logger.Info("Redis node is in quarantine", "node", address, "left", nodes[i].Quarantine)
		case before == votes:
			k.logger.Warn("Redis node is empty and does not vote", "node", address)
		}
	}
}

// failureLog logs the failures of steps that are repeated, each once until it changes. The
// zero value is empty. Its methods must not be called concurrently.
type failureLog struct{ last map[[2]string]string }

// log logs the failure of one kind of action on one object, unless it is the last one
// again. Without an error it forgets the last one.
func (f *failureLog) log(logger *slog.Logger, message, object string, err error, args ...any) {
	key := [2]string{message, object}
	if err == nil {
		delete(f.last, key)
		return
	}
	if f.last[key] == err.Error() {
		return
	}
	if f.last == nil {
		f.last = map[[2]string]string{}
	}
	f.last[key] = err.Error()
	logger.Warn(message, append(args, "error", err)...)
}

package redlockadapter

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// checkFloors returns an error if the nodes could grant a token that this process already holds or held: they have lost
// their state, or an operator initialised a quorum of them with a floor below such a token. While there is an error,
// every attempt checks again. With a service there is no need: its log has the floors.
//
// granted is the largest token granted to this process before it asked for the statuses. A single node may have started
// below it without any loss, if this process could not reach the node earlier: a quorum of other nodes granted the
// token.
func (k *keeper) checkFloors(granted fencing.Token, statuses []NodeStatus) (err error) {
	b := k.backend
	sound, low, lowest := 0, 0, fencing.MaxToken
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, s := range statuses {
		server, live := s.Report.Server, s.Report.Live
		switch _, known := k.begun[server]; {
		case !s.Report.Reached:
			continue
		case live == nil: // it may have been emptied
			delete(k.begun, server)
		case !known:
			k.begun[server] = k.granted[i]
		}
		k.granted[i] = granted
		switch {
		case live == nil:
		case live.Floor < k.begun[server]:
			low, lowest = low+1, min(lowest, live.Floor)
		default:
			sound++
		}
	}
	switch {
	case granted == fencing.None:
	case recovery.StateIsLost(b.fingerprint, reports(statuses)):
		err = b.noStateError()
	case low >= b.quorum:
		err = fmt.Errorf("%w: the nodes were initialised with the floor %d, but this process was granted tokens up to %d; "+
			"empty them, and run '%s' with a larger --floor", ErrNoState, lowest, granted, b.initCommand())
	case sound < b.quorum && k.suspect.Load():
		err = fmt.Errorf("%w: after a loss of their state, %d of %d Redis nodes are known to vote again, %d are needed",
			engine.ErrUnavailable, sound, len(b.nodes), b.quorum)
	}
	k.suspect.Store(err != nil)
	return err
}

// checkSuspect returns the error of checkFloors if its last call found one, and it is still true.
func (k *keeper) checkSuspect(ctx context.Context) error {
	if !k.suspect.Load() {
		return nil
	}
	granted := k.backend.grants.newestToken()
	return k.checkFloors(granted, k.backend.NodeStatuses(ctx))
}

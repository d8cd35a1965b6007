package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// Phases are the phases in which the actions of a step are carried out: log entries first, calls to nodes next,
// initialisations last. The actions of a phase run concurrently.
var Phases = [][]Kind{{Reconcile, FinishReconcile, RaiseCeiling, FinishMigration, FinishFleet, CloseSets},
	{Join, Rejoin}, {NameLife, FinishRecovery}, {Advance}, {Initialise}}

// run carries out the actions of a step in phases.
func (k *Keeper) run(ctx context.Context, actions []Action, state machine.Efficiency,
	backend *redlockadapter.Backend) (progressed bool) {
	e := &execution{Keeper: k, state: state, backend: backend}
	for _, phase := range Phases {
		var work sync.WaitGroup
		var done sync.Mutex
		for _, a := range actions {
			if !slices.Contains(phase, a.Kind) {
				continue
			}
			work.Go(func() {
				err := e.do(ctx, a)
				done.Lock()
				defer done.Unlock()
				progressed = progressed || err == nil
				if errors.Is(err, errQuarantine) || ctx.Err() != nil {
					return
				}
				k.failures.log(k.logger, "cannot "+a.Kind.String(), e.address(a)+a.Prefix, err, "node", e.address(a), "prefix",
					a.Prefix)
			})
		}
		work.Wait()
	}
	return progressed
}

// errQuarantine reports that a node must wait before it votes.
var errQuarantine = errors.New("the node is in quarantine")

// execution carries out the actions of one step.
type execution struct {
	*Keeper
	state   machine.Efficiency
	backend *redlockadapter.Backend
}

func (e *execution) address(a Action) string {
	if a.Kind < Join {
		return ""
	}
	return e.state.Fleet.Addresses[a.Node]
}

// Command returns the log entry that carries out an action, or nil if a call of a node does.
func (a Action) Command(state machine.Efficiency) machine.Command {
	switch a.Kind {
	case Reconcile:
		return reconcile(a.Version, a.Evidence, fencing.None)
	case FinishReconcile:
		return &machine.FinishReconcile{Version: a.Version}
	case RaiseCeiling:
		return &machine.RaiseCeiling{To: a.Ceiling}
	case FinishMigration:
		return &machine.FinishMigration{Prefix: a.Prefix, Version: a.Version, Granted: a.Granted}
	case FinishFleet:
		return &machine.FinishFleet{Version: a.Version}
	case CloseSets:
		return &machine.CloseSets{Version: a.Version, Granted: a.Granted}
	case NameLife:
		return &machine.NameLife{Member: state.Fleet.Addresses[a.Node], Life: a.Life, Version: a.Version}
	case FinishRecovery:
		return &machine.FinishRecovery{Member: state.Fleet.Addresses[a.Node], Life: a.Life}
	}
	return nil
}

// do carries out an action. If it fails, the next step decides again.
func (e *execution) do(ctx context.Context, a Action) error {
	if c := a.Command(e.state); c != nil {
		err := e.log.Change(ctx, c)
		if err == nil && a.Kind == FinishReconcile {
			e.logger.Info("efficiency mode is ready", "version", a.Version)
		}
		return err
	}
	switch a.Kind {
	case Join:
		return e.backend.Join(ctx, a.Node, a.Server, JoinNonce(e.state.Version, rand.Text()), e.state.Version)
	case Rejoin:
		return e.backend.Rejoin(ctx, a.Node, a.Server, a.Join, e.state.Version)
	case Advance:
		if err := e.backend.Advance(ctx, a.Node, a.Server, a.Goal); err != nil {
			return err
		}
		if len(e.state.Migrations) > 0 || e.state.NextVersion != 0 {
			e.logger.Debug("Redis node has the new version", "node", e.address(a), "version", a.Goal.Version)
		}
	case Initialise:
		// A node that lost its state in the meantime rejects the join nonce; the next step
		// sees that.
		wait, err := e.backend.Initialise(ctx, a.Node, a.Server, a.Range)
		if err == nil && wait > 0 {
			return errQuarantine
		}
		return err
	}
	return nil
}

// reconcile returns the command that moves the log past the reports of the nodes, and past a floor that an operator
// provides. A node may report more than the operator knows.
func reconcile(version uint64, e recovery.Evidence, floor fencing.Token) *machine.Reconcile {
	return &machine.Reconcile{At: version, Version: e.Version, Ceiling: max(e.Ceiling, floor), Lives: e.Lives,
		Past: e.Past}
}

package redlockadapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/recovery"
	"github.com/leased-project/leased/redlockadapter/redisconn"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// initInterval is the time between two steps of Init.
const initInterval = 20 * time.Millisecond

// initTime is the time for which New waits until the nodes of a new fleet vote.
const initTime = 5 * time.Second

// Init makes the nodes of a new standalone fleet voters, with tokens above floor. An
// operator also calls it if fewer than a quorum of the fleet's nodes can report which
// tokens were granted; floor must then be above every token that was ever granted. If no
// node needs Init, voters of this fleet stay as they are: it is an error if their tokens may
// be at or below floor. A voter of another fleet is an error, too.
//
// It is a recovery in which the operator vouches for the floor. A quorum of the nodes must
// be reachable, and must be able to save the floor to disk before a node votes. Nodes wait
// for their quarantine, unless all nodes are reachable, none has a history, and floor is
// None. Init returns when every node that it reached votes.
func Init(ctx context.Context, config Config, floor fencing.Token) error {
	config.Topology = nil
	b, err := connect(ctx, config)
	if err != nil {
		return err
	}
	defer b.Close(context.WithoutCancel(ctx))
	statuses := b.NodeStatuses(ctx)
	history, all, empty, above, below := false, true, false, 0, 0
	for _, s := range statuses {
		live := s.Report.Live
		if live != nil && live.Fleet != b.fingerprint {
			return fmt.Errorf("%w: %s: %w", engine.ErrUnavailable, s.Addr, scripts.ErrFleet)
		}
		history = history || live != nil || s.Report.Former != nil
		all = all && s.Err == nil
		empty = empty || s.Err == nil && live == nil
		switch {
		case live == nil:
		case live.Floor >= floor:
			above++
		default:
			below++
		}
	}
	switch {
	case recovery.CheckStandalone(reports(statuses)) != nil:
		return b.versionError()
	case !empty && below > 0 && above < b.quorum: // a recovery would reserve the floor on voters, too
		return fmt.Errorf("%w: all Redis nodes that were reached vote already, %d of %d above %d; stop the programs and "+
			"empty the nodes first", engine.ErrInvalid, above, len(b.nodes), floor)
	}
	k := b.keeper
	k.standalone.Provided = &floor
	switch {
	case history:
		known, _ := recovery.StandaloneFloor(reports(statuses))
		floor = max(floor, known)
	case all && floor == fencing.None:
		k.standalone.Quarantine = 0
	}
	return k.recoverAll(ctx)
}

// initialiseNew makes the nodes of a new fleet voters. It returns ErrNoState if the nodes have no state and
// may have lost it, and only engine.ErrUnavailable if one does not answer: then a retry may help. It returns nil
// if they vote or will be recovered.
func (k *keeper) initialiseNew(ctx context.Context) error {
	b := k.backend
	if b.config.Topology != nil || !b.stateIsLost() {
		return nil
	}
	if !recovery.NeverVoted(reports(k.last)) {
		return b.noStateError()
	}
	for i, s := range k.last {
		switch err := b.remembers(ctx, i, s.Report.Server); {
		case errors.Is(err, engine.ErrUnavailable):
			return err
		case err != nil:
			return fmt.Errorf("%w: %w; or, if the nodes are new, run '%s --floor 0' once", ErrNoState, err, b.initCommand())
		}
	}
	// If a node votes or has reserved a floor, another process is initialising the nodes, or a majority has lost its
	// state. Only time tells them apart.
	k.standalone.Begin(reports(k.last))
	defer k.standalone.End()
	// Another process may have put a join nonce on the nodes, and ended.
	limited, cancel := context.WithTimeout(ctx, b.config.joinGap()+initTime)
	defer cancel()
	err := k.recoverAll(limited)
	k.look(ctx)
	voters := 0
	for _, s := range k.last {
		if s.Report.Live != nil {
			voters++
		}
	}
	if err != nil && voters < b.quorum { // else this process, or another one, recovers the others later
		return fmt.Errorf("%w: %w", b.noStateError(), err)
	}
	b.config.Logger.Info("initialised new Redis nodes", "nodes", b.config.fleet().Addresses)
	return nil
}

// remembers returns an error unless a server keeps its data on disk. Otherwise it would not know after a
// restart whether it has voted. The error is engine.ErrUnavailable if the server does not answer.
func (b *Backend) remembers(ctx context.Context, node int, server string) error {
	n := b.nodes[node].At(server)
	info, err := n.Info(ctx)
	if err != nil || info["aof_enabled"] == "1" {
		return b.unanswered(node, err)
	}
	got, err := n.Do(ctx, redisconn.NewCommand("config", "get", "save"))
	var refused redisconn.RedisError
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("cannot tell whether the node keeps its data on disk, and is new: %w; enable its append-only file",
			err)
	case err != nil:
		return b.unanswered(node, err)
	case got.Word(1) == "":
		return fmt.Errorf("%s keeps nothing on disk, so after a restart it would look like a new node; enable its "+
			"append-only file "+
			"(appendonly yes)", n.Addr())
	}
	return nil
}

// unanswered returns the error for a request that a node did not answer, or nil.
func (b *Backend) unanswered(node int, err error) error {
	if err == nil {
		return nil
	}
	errs := make([]error, len(b.nodes))
	errs[node] = err
	return fmt.Errorf("%w: %w", engine.ErrUnavailable, b.nodesError(errs))
}

// recoverAll recovers every empty node that can be reached.
func (k *keeper) recoverAll(ctx context.Context) error {
	b := k.backend
	for {
		statuses := b.NodeStatuses(ctx)
		_, waiting := k.recoverStep(ctx, statuses)
		voters, errs := 0, make([]error, len(statuses))
		for i, s := range statuses {
			if errs[i] = errors.Join(s.Err, waiting[i]); errs[i] == nil {
				voters++
			}
		}
		switch failed := errors.Join(errs...); {
		case len(waiting) == 0 && voters >= b.quorum:
			return nil
		case errors.Is(failed, errNotSaved):
			return fmt.Errorf("%w: %w", engine.ErrUnavailable, failed)
		}
		if cause := engine.Sleep(ctx, initInterval); cause != nil {
			return fmt.Errorf("%w: %d of %d Redis nodes were initialised, %d are needed: %w: %w",
				engine.ErrUnavailable, voters, len(b.nodes), b.quorum, cause, errors.Join(errs...))
		}
	}
}

// recoverStep takes the next step of the recovery of empty nodes. progressed reports whether the next step may
// have more to do at once. waiting says, for each empty node, why it does not vote yet.
func (k *keeper) recoverStep(ctx context.Context, statuses []NodeStatus) (progressed bool, waiting map[int]error) {
	nodes := make([]recovery.Node, len(statuses))
	for i, s := range statuses {
		nodes[i] = s.Node
		nodes[i].MayNotSave = k.mayNotSave[i]
		if saved := k.snapshots[s.Report.Server]; saved != nil && saved.done {
			nodes[i].Saved, nodes[i].SavedFloor = true, saved.floor
		}
	}
	actions, waiting, progressed := k.standalone.Step(nodes, func() string { return engine.NewSessionID().String() })
	var work sync.WaitGroup
	errs := make([]error, len(actions))
	if len(waiting) == 0 {
		clear(k.snapshots)
	}
	for _, a := range actions {
		switch s := k.snapshots[a.Server]; {
		case a.Kind == recovery.Reserve: // an older save does not have it
			delete(k.snapshots, a.Server)
		case a.Kind == recovery.Save && (s == nil || s.floor < a.Floor):
			k.snapshots[a.Server] = &snapshot{server: k.backend.nodes[a.Node].At(a.Server), floor: a.Floor,
				reserved: k.backend.clock.Now()}
		}
	}
	for i, a := range actions { // they read the snapshots
		work.Go(func() { errs[i] = k.do(ctx, a) })
	}
	work.Wait()
	for i, a := range actions { // a save takes its time, and a join a quarantine
		done := a.Kind == recovery.Reserve || a.Kind == recovery.Initialise ||
			a.Kind == recovery.Save && k.snapshots[a.Server].done
		progressed = progressed || done && errs[i] == nil
		if a.Kind == recovery.Save {
			k.mayNotSave[a.Node] = errors.Is(errs[i], redisconn.ErrNotPermitted) || k.mayNotSave[a.Node] && errs[i] != nil
		}
	}
	for i, why := range waiting {
		switch {
		case errors.Is(why, recovery.ErrService):
			why = k.backend.versionError()
		case errors.Is(why, recovery.ErrNearEnd):
			why = redisconn.SetupError(statuses[i].Addr, "%v", why)
		}
		waiting[i] = errors.Join(append(errs, why)...) // every recovery needs the other nodes
	}
	return progressed, waiting
}

// do carries out an action. If it fails, the next step decides again.
func (k *keeper) do(ctx context.Context, a recovery.Action) error {
	b := k.backend
	at := b.at(a.Node, a.Server)
	switch a.Kind {
	case recovery.Join:
		gap := b.config.joinGap()
		join := scripts.Join{Nonce: a.Join, Version: recovery.StandaloneVersion, Fleet: b.fingerprint, Keep: gap, Gap: gap}
		if k.standalone.Provided != nil { // an operator decides, not another process
			join.Keep = 0
		}
		return join.Put(ctx, at)
	case recovery.Reserve:
		return scripts.Reserve(ctx, at, b.fingerprint, a.Floor, a.Vouched)
	case recovery.Save:
		return k.snapshots[a.Server].advance(ctx, b.clock.Now())
	default:
		wait, err := scripts.Init(ctx, at, b.fingerprint, a.Range)
		if err == nil && wait > 0 {
			err = fmt.Errorf("%s: the quarantine has started again", at.Addr())
		}
		return err
	}
}

package scripts

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/recovery"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// Node is a connection to a node: a Conn, or one that is bound to one run of the server.
type Node interface {
	Addr() string
	Do(ctx context.Context, r *redisconn.Request) (redisconn.Reply, error)
}

// NodeReport is the reply of the report script.
type NodeReport struct {
	recovery.Report
	// Clock is the time of the server.
	Clock time.Time
	// Join is the join nonce of an empty node.
	Join string
	// Waited is the time since the quarantine of that node began, and Joined the time since the
	// last join.
	Waited, Joined time.Duration
}

// Report asks a node for its state. namespace is the prefix of all keys.
func Report(ctx context.Context, c *redisconn.Conn, namespace string) (NodeReport, error) {
	got, err := c.Do(ctx, stateRequest(reportScript, namespace))
	if err != nil {
		return NodeReport{}, err
	}
	w := got.Words
	if len(w) < reportFields {
		return NodeReport{}, fmt.Errorf("%s: report has %d fields: %w", c.Addr(), len(w), redisconn.ErrProtocol)
	}
	r := NodeReport{Report: recovery.Report{Reached: true, Server: w[1]}, Join: w[11]}
	if r.Live, err = parseState(w[2:]); err != nil {
		return NodeReport{}, stateError(c, "its state", err)
	}
	if former := w[reportFields:]; len(former) > stateFields {
		r.FormerServer = former[0]
		if r.Former, err = parseState(former[1:]); err != nil {
			return NodeReport{}, stateError(c, "the state of its former life", err)
		}
	}
	r.Waited, _ = fromMillis(w[12]) // empty for a voter
	r.Joined, _ = fromMillis(w[13])
	millis, _ := strconv.ParseInt(w[0], 10, 64)
	r.Clock = time.UnixMilli(millis)
	return r, nil
}

// stateError explains why a state cannot be read. A newer format is not a mistake in the
// setup: the other nodes may still be a quorum.
func stateError(c *redisconn.Conn, state string, err error) error {
	if newer := (*engine.FormatError)(nil); errors.As(err, &newer) {
		return fmt.Errorf("%s does not vote: %w", c.Addr(), err)
	}
	return redisconn.SetupError(c.Addr(), "%s cannot be read: %v", state, err)
}

// The numbers of fields in a report: of a state, and before the former life.
const (
	stateFields  = 9
	reportFields = 2 + stateFields + 3
)

// parseState returns the state in the fields of a report, nil if there is none.
func parseState(w []string) (*recovery.State, error) {
	if w[0] == "" {
		return nil, nil //nolint:nilnil // nil is an empty node
	}
	err := checkFormat(w[0])
	if err != nil {
		return nil, err
	}
	s := &recovery.State{Fleet: w[2], Member: w[3], Join: w[7], Successor: w[8]}
	if s.Version, err = strconv.ParseUint(w[1], 10, 53); err != nil {
		return nil, err
	}
	for i, to := range []*fencing.Token{&s.Max, &s.Floor, &s.Ceiling} {
		if *to, err = fencing.ParseToken(w[4+i]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// stateRequest calls a script that uses the node's state and the name of its latest
// initialised life.
func stateRequest(s *redisconn.Script, args ...string) *redisconn.Request {
	return redisconn.NewRequest(s, []string{nodeKey}, args...).WithGlobalKeys(lifeKey)
}

// call runs a script that replies "ok", or why the node refused.
func call(ctx context.Context, c Node, step string, r *redisconn.Request) error {
	got, err := c.Do(ctx, r)
	if err == nil && got.Word(0) != "ok" {
		err = fmt.Errorf("%s: %s refused: %s", c.Addr(), step, got.Word(0))
	}
	return err
}

// Join has the parameters of a join.
type Join struct {
	Nonce   string
	Version uint64
	Fleet   string
	// Keep: another join nonce stays if it was put or repeated less than this time ago.
	Keep time.Duration
	// Again: a voter of this fleet gets one too.
	Again bool
	// Gap is the time without a join after which the quarantine starts again.
	Gap time.Duration
}

// Put puts a join nonce on an empty node, or repeats it.
func (j Join) Put(ctx context.Context, c Node) error {
	return call(ctx, c, "join", redisconn.NewRequest(joinScript, []string{nodeKey}, j.Nonce,
		strconv.FormatUint(j.Version, 10), j.Fleet, millis(j.Keep), flag(j.Again), millis(j.Gap)))
}

// Init gives a range to the node that has its join nonce. wait is above 0 while the
// quarantine of the node lasts.
func Init(ctx context.Context, c Node, fleet string, r recovery.Range) (wait time.Duration, err error) {
	got, err := c.Do(ctx, stateRequest(initScript, r.Join, strconv.FormatUint(r.Version, 10), fleet, c.Addr(),
		r.Floor.String(), r.Ceiling.String(), millis(r.Quarantine), r.Successor))
	if err != nil {
		return 0, err
	}
	switch got.Word(0) {
	case "ok":
		return 0, nil
	case "wait":
		if wait, err = fromMillis(got.Word(1)); err == nil {
			return max(time.Millisecond, wait), nil
		}
	case "format":
		return 0, fmt.Errorf("%s: init refused: its state was written by a newer build; see 'leased redis status'", c.Addr())
	case "join":
		return 0, fmt.Errorf("%s: another join has replaced this one, or the node was lost again", c.Addr())
	}
	return 0, fmt.Errorf("%s: %w: %q", c.Addr(), redisconn.ErrProtocol, got.Words)
}

// Advance raises a node to a goal. Nothing is ever lowered.
func Advance(ctx context.Context, c Node, goal recovery.Goal) error {
	return call(ctx, c, "advance", redisconn.NewRequest(advanceScript, []string{nodeKey},
		strconv.FormatUint(goal.Version, 10), goal.Fleet, goal.Floor.String(), goal.Ceiling.String(), goal.Successor))
}

// Reserve stores a floor on a node from which another node is about to start. With create,
// a node without any state stores it too, as the state of a former life.
func Reserve(ctx context.Context, c Node, fleet string, floor fencing.Token, create bool) error {
	version := ""
	if create {
		version = strconv.Itoa(recovery.StandaloneVersion)
	}
	return call(ctx, c, "reserve", stateRequest(reserveScript, fleet, floor.String(), version))
}

// Sweep removes the data of former lives, and the records of locks that were not used
// for longer than idle. namespace is the prefix of all keys.
func Sweep(ctx context.Context, c *redisconn.Conn, namespace string, idle time.Duration) error {
	for cursor := "0"; ; {
		got, err := c.Do(ctx, stateRequest(sweepScript, cursor, namespace, millis(idle)))
		if err != nil {
			return err
		}
		if cursor = got.Word(0); cursor == "0" {
			return nil
		}
	}
}

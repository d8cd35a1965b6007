package routing

import (
	"context"
	"errors"
	"time"

	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// LeaderAddress returns the API address of the leader, or "" if this member does
// not know it.
func (r *Router) LeaderAddress() string {
	leader, _ := r.Node.Leader()
	if leader == "" {
		return ""
	}
	return r.Node.MemberAPI(leader)
}

// LeaderTimeout is how long AwaitLeader waits.
const LeaderTimeout = raftstore.LeaderTimeout

// AwaitLeader waits for a leader and returns its API address. If this member leads,
// it returns its own address.
func (r *Router) AwaitLeader(ctx context.Context) (address string, err error) {
	id, address, err := r.Node.AwaitLeader(ctx)
	if err != nil {
		return "", err
	}
	if id == r.Node.ID() {
		return r.Address, nil
	}
	return address, nil
}

// ErrLeaderChanged means that a member no longer leads, and has not answered for a while.
var ErrLeaderChanged = engine.Special("the member no longer leads, and does not answer", engine.ErrUnavailable)

// leaderCheck is the time between two looks at the leader. A member that no longer leads at two of them has had time to
// answer.
const leaderCheck = 500 * time.Millisecond

// WhileLeads returns a context that ends with ErrLeaderChanged some time after the member at an address has ceased to
// lead: a request to it would wait for as long as it hangs. Call stop when it has answered.
func (r *Router) WhileLeads(ctx context.Context, address string) (bound context.Context, stop func()) {
	bound, cancel := context.WithCancelCause(ctx)
	var look func(elsewhere bool) *time.Timer
	look = func(elsewhere bool) *time.Timer {
		return time.AfterFunc(leaderCheck, func() {
			switch now := r.LeaderAddress() != address; {
			case bound.Err() != nil:
			case elsewhere && now:
				cancel(ErrLeaderChanged)
			default:
				look(now)
			}
		})
	}
	first := look(false)
	return bound, func() {
		first.Stop() // most requests end before; later looks end by themselves
		cancel(nil)
	}
}

// RequireLeader returns an error that names the leader unless this member leads.
func (r *Router) RequireLeader() error {
	if r.Node.Leads() {
		return nil
	}
	return r.NameLeader(&raftstore.NotLeaderError{Node: r.Node.ID()})
}

// NameLeader adds the leader's API address to the error of a member that is not the
// leader. It returns every other error unchanged.
func (r *Router) NameLeader(err error) error {
	if !IsNotLeader(err) {
		return err
	}
	leader := r.LeaderAddress()
	if leader == r.Address {
		leader = ""
	}
	text := "member " + r.Node.ID() + " is not the leader, and knows no leader; try again"
	switch {
	case leader != "":
		text = "member " + r.Node.ID() + " is not the leader; the leader's API address is " + leader
	case r.Node.Removed():
		text = "member " + r.Node.ID() + " was removed from the cluster; use another member"
	}
	return &wire.NotLeaderError{Leader: leader, Text: text}
}

// IsNotLeader reports whether a call failed only because this member is not the leader. The
// call had no effect, so the leader can be asked.
func IsNotLeader(err error) bool {
	var notLeader *raftstore.NotLeaderError
	return (errors.As(err, &notLeader) || errors.Is(err, wire.ErrNotLeader)) && !errors.Is(err, engine.ErrUncertain)
}

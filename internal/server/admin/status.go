package admin

import (
	"context"
	"fmt"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
)

// maxBacklog is the number of entries up to which a member counts as caught up. Under
// load, every follower is always a few entries behind.
const maxBacklog = 1000

// Stopping makes Health report that this member shuts down.
func (s *Service) Stopping() { s.stopping.Store(true) }

// Status returns the state of this member.
func (s *Service) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	n := s.Router.Node.Status()
	response := &pb.StatusResponse{Id: n.ID, RaftAddress: n.Address, ApiAddress: s.Router.Address, State: n.State,
		Serves: n.Serves,
		Leader: n.Leader, LeaderApiAddress: s.Router.LeaderAddress(), Term: n.Term, Generation: n.Generation,
		LastIndex:   n.LastIndex,
		CommitIndex: n.Commit, AppliedIndex: n.Applied, ChainIndex: n.Chain.Index, ChainHash: n.Chain.String(),
		LastToken: uint64(n.LastToken), Sessions: int64(n.Counts.Sessions), Locks: int64(n.Counts.Locks),
		Holders: int64(n.Counts.Holders), Waiters: int64(n.Counts.Waiters), Version: s.Version, Build: BuildInfo(s.Version)}
	for _, m := range n.Members {
		member := &pb.Member{Id: m.ID, RaftAddress: m.Address, Voter: m.Voter, Leader: m.ID == n.Leader, WentBack: m.WentBack}
		if m.LagKnown {
			member.Lag = &m.Lag
		}
		if member.ApiAddress = s.Router.Node.MemberAPI(m.ID); m.ID == n.ID {
			member.ApiAddress = s.Router.Address
		}
		response.Members = append(response.Members, member)
	}
	if backend, err := s.Router.Redis.Backend(); err == nil {
		response.Redis = nodeStates(backend.NodeStatuses(ctx), s.Router.Node.Topology())
	}
	return response, nil
}

// Health reports whether the service can be used through this member. Without a
// leader, a member that reaches the Redis nodes serves locks in efficiency mode.
func (s *Service) Health(ctx context.Context, _ *pb.HealthRequest) (*pb.HealthResponse, error) {
	response := &pb.HealthResponse{Status: "serving", Leader: s.Router.LeaderAddress()}
	reason, limited := s.problems()
	missing := ""
	if reason == "" {
		missing = s.votesMissing(ctx)
	}
	switch {
	case reason != "":
		response.Status, response.Reason = "not-serving", reason
	case limited != "" && missing != "":
		response.Status, response.Reason = "not-serving", limited+"; "+missing
	case limited != "":
		response.Reason = "locks in efficiency mode only: " + limited
	case missing != "":
		response.Reason = "locks in correctness mode only: " + missing
	case s.largestToken() > fencing.DefaultMaxJump/2:
		response.Reason = fmt.Sprintf("tokens have reached %d, more than half of what a gate admits as the first token "+
			"of a resource: "+
			"raise the bound of the gates, see LeasedTokensNearBound in docs/ALERTS.md", s.largestToken())
	}
	return response, nil
}

// largestToken returns the largest token of both modes, as far as this member knows.
func (s *Service) largestToken() fencing.Token {
	largest := s.Router.Node.Status().LastToken
	if backend, err := s.Router.Redis.Backend(); err == nil {
		for _, n := range backend.NodesSeen() {
			if n.Report.Live != nil {
				largest = max(largest, n.Report.Live.Max)
			}
		}
	}
	return largest
}

// Serving reports whether Health would be "serving".
func (s *Service) Serving(ctx context.Context) bool {
	reason, limited := s.problems()
	return reason == "" && (limited == "" || s.votesMissing(ctx) == "")
}

// problems returns why the service cannot be used through this member, and why
// locks in correctness mode cannot. Both are "" if there is no problem.
func (s *Service) problems() (reason, limited string) {
	node := s.Router.Node
	state := node.Efficiency()
	switch err := node.Failure(); {
	case err != nil:
		return err.Error(), ""
	case s.stopping.Load():
		return "member " + node.ID() + " is shutting down", ""
	case state.Restored && !state.Fleet.IsZero():
		return "the restored log has not caught up with the Redis nodes, and no lock is granted; see 'leased redis status'",
			""
	case node.Leads():
		return "", ""
	case node.Removed():
		return "member " + node.ID() + " was removed from the cluster; stop it and empty its data folder", ""
	}
	backlog, known := node.Backlog()
	if behind := behind(node.CatchingUp(), known, backlog); behind != "" {
		return "member " + node.ID() + " " + behind, ""
	}
	leader, _ := node.Leader()
	switch {
	case leader == "":
		limited = "there is no leader; check that a majority of the members run and are connected, and that this " +
			"member was not removed while it was stopped"
	case s.Router.LeaderAddress() == "":
		limited = "member " + leader + " leads, and has not published its API address yet"
	default:
		return "", ""
	}
	if topology := node.Topology(); topology.Ready && !topology.Fleet.IsZero() {
		if _, err := s.Router.Redis.Backend(); err == nil {
			return "", limited
		}
	}
	return limited, limited
}

// behind says that a follower has not caught up with the log, or returns "". Such a
// member routes by old policies. In a rolling restart the next member must wait for it,
// or no majority may have the whole log.
func behind(joining, known bool, backlog uint64) string {
	switch {
	case joining:
		return "is joining the cluster and has not caught up with its log"
	case !known:
		return "has not learned yet how many log entries are missing"
	case backlog > maxBacklog:
		return fmt.Sprintf("is catching up with the log: %d entries are missing", backlog)
	}
	return ""
}

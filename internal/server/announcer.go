package server

import (
	"context"
	"errors"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

const (
	// leaderLock is a lock whose holder is the leader, with the address of its
	// API in the metadata. It is only how members find that address: who leads
	// is decided by Raft.
	leaderLock fencing.Resource = reserved + "leader"
	// leaderAddress is the key of the address.
	leaderAddress = "api"
	// leaderTTL is how long the announcement lasts when it is not renewed.
	leaderTTL = time.Minute
	// leadershipPause is how often a member looks whether it leads.
	leadershipPause = 20 * time.Millisecond
	// announceTime bounds one try to announce.
	announceTime = 5 * time.Second
)

// announcer keeps the address of the leader's API in the replicated state.
type announcer struct {
	router  *router
	address string

	session lease.Session
	renewed lease.Instant
}

// run announces this member whenever it leads, until ctx ends.
func (a *announcer) run(ctx context.Context) {
	tick := time.NewTicker(leadershipPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if a.router.node.Leads() {
			a.look(ctx)
		}
	}
}

// look announces if another member is announced, and else renews in time.
func (a *announcer) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	if a.session == nil || a.router.leaderAPI() != a.address {
		_ = a.announce(ctx) // the next look tries again
		return
	}
	if now := a.router.clock.Now(); now.Since(a.renewed) > leaderTTL/3 {
		_, err := a.session.Renew(ctx)
		switch {
		case err == nil:
			a.renewed = now
		case errors.Is(err, lease.ErrLost):
			a.session = nil
		}
	}
}

// announce takes the lock from whoever announced before.
func (a *announcer) announce(ctx context.Context) error {
	policies, version, err := a.router.node.Policies(ctx, raftstore.Linearizable)
	if err != nil {
		return err
	}
	if policies.For(leaderLock).Prefix != reserved {
		own := lease.Policy{Prefix: reserved, Mode: lease.Correctness}
		if _, err := a.router.node.SetPolicy(ctx, own, version); err != nil {
			return err
		}
	}
	status, err := a.router.raft.Inspect(ctx, leaderLock)
	if err != nil {
		return err
	}
	sent := a.router.clock.Now()
	session, err := a.router.raft.Open(ctx, lease.SessionConfig{ID: lease.NewSessionID(), TTL: leaderTTL, Clock: a.router.clock})
	if err != nil {
		return err
	}
	for _, h := range status.Holders {
		if err := a.router.raft.Break(ctx, leaderLock, h.Token); err != nil && !errors.Is(err, lease.ErrNotHeld) {
			return err
		}
	}
	_, err = session.Acquire(ctx, lease.Request{Nonce: 1, Resources: []fencing.Resource{leaderLock},
		Holder: a.router.node.ID(), Metadata: map[string]string{leaderAddress: a.address}})
	if err != nil {
		return err
	}
	if a.session != nil { // its lock is broken, the rest of it is not needed
		go func(old lease.Session) { _ = old.Close(context.WithoutCancel(ctx)) }(a.session)
	}
	a.session, a.renewed = session, sent
	return nil
}

// leaderAPI is where the API of the leader is, empty if this member does not
// know.
func (r *router) leaderAPI() string {
	leader, _ := r.node.Leader()
	if leader == "" {
		return ""
	}
	status, err := r.node.Inspect(context.Background(), leaderLock, raftstore.Stale)
	if err != nil {
		return ""
	}
	for _, h := range status.Holders {
		if h.Holder == leader {
			return h.Metadata[leaderAddress]
		}
	}
	return ""
}

// notLeader is the error of a member that does not lead.
func (s *Server) notLeader() error {
	return s.explain(&raftstore.NotLeaderError{Node: s.config.Node.ID()})
}

// explain gives the error of a member that does not lead the address that
// clients need.
func (s *Server) explain(err error) error {
	var not *raftstore.NotLeaderError
	if err == nil || !errors.As(err, &not) || errors.Is(err, lease.ErrUncertain) {
		return err
	}
	leader := s.router.leaderAPI()
	if leader == s.address {
		leader = ""
	}
	text := "member " + s.config.Node.ID() + " does not lead, and knows no leader"
	if leader != "" {
		text = "member " + s.config.Node.ID() + " does not lead; the leader's API is at " + leader
	}
	return &wire.NotLeaderError{Leader: leader, Text: text}
}

package member

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/raftstore"
)

// formPause is the time between two looks at the other members.
const formPause = 300 * time.Millisecond

// form makes this member part of a cluster, unless it is already. It tries
// until ctx ends.
func (m *Member) form(ctx context.Context) error {
	tick := time.NewTicker(formPause)
	defer tick.Stop()
	told := ""
	for {
		done, missing, err := m.formOnce(ctx)
		if done || err != nil {
			return err
		}
		if missing != told {
			told = missing
			m.logger.Info("waiting to form a cluster", "for", missing)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// formOnce looks once. It says whether this member is part of a cluster now,
// and else what is missing.
func (m *Member) formOnce(ctx context.Context) (done bool, missing string, err error) {
	known := m.node.Members()
	part := len(known) > 0
	if m.node.CatchingUp() { // it was stopped, and what it knows may be of the past
		part = true
	} else if part && !m.learns(known) {
		return true, "", nil
	}
	if !part && m.settings.BootstrapExpect == 1 {
		return true, "", m.bootstrap()
	}
	answers := m.peers.ask(ctx)
	for address, status := range answers {
		if len(status.Members) == 0 || status.Id == m.settings.ID {
			continue
		}
		m.logger.Info("joining the cluster", "through", address)
		return true, "", m.server.Join(ctx, address)
	}
	if part || m.settings.BootstrapExpect == 0 {
		return false, "a member of the cluster at " + strings.Join(m.peers.addresses, ", "), nil
	}
	members, err := founders(answers)
	if err != nil {
		return false, "", err
	}
	if len(members) < m.settings.BootstrapExpect {
		return false, fmt.Sprintf("%d members, %d are here", m.settings.BootstrapExpect, len(members)), nil
	}
	// One begins: the first by name. The others join it.
	for _, other := range members {
		if other.ID < m.settings.ID {
			return false, "member " + other.ID + " to begin", nil
		}
	}
	return true, "", m.bootstrap()
}

// learns: this member was let in, and stopped before it had a vote.
func (m *Member) learns(members []raftstore.Member) bool {
	for _, other := range members {
		if other.ID == m.settings.ID {
			return !other.Voter
		}
	}
	return false
}

func (m *Member) bootstrap() error {
	err := m.node.Bootstrap()
	if errors.Is(err, raftstore.ErrBootstrapped) {
		return nil
	}
	if err == nil {
		m.logger.Info("began a new cluster")
	}
	return err
}

// founders are the members that answered. Each must be another one.
func founders(answers map[string]*pb.StatusResponse) ([]raftstore.Member, error) {
	byID, byRaft := map[string]string{}, map[string]string{}
	var members []raftstore.Member
	for address, status := range answers {
		if other, twice := byID[status.Id]; twice {
			return nil, fmt.Errorf("%w: %s and %s are both member %q; give each an id of its own", ErrFormation, other, address, status.Id)
		}
		if other, twice := byRaft[status.RaftAddress]; twice {
			return nil, fmt.Errorf("%w: %s and %s both have raft-advertise %s", ErrFormation, other, address, status.RaftAddress)
		}
		byID[status.Id], byRaft[status.RaftAddress] = address, address
		members = append(members, raftstore.Member{ID: status.Id, Address: status.RaftAddress})
	}
	return members, nil
}

package member

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// formInterval is the time between two attempts to form a cluster.
const formInterval = 300 * time.Millisecond

// form makes this member part of a cluster. It retries until ctx ends.
func (m *Member) form(ctx context.Context) error {
	logged := ""
	for {
		done, missing, err := m.formOnce(ctx)
		if done || err != nil {
			return err
		}
		if missing != logged {
			logged = missing
			m.logger.Info("waiting to form a cluster", "for", missing)
		}
		if err := engine.Sleep(ctx, formInterval); err != nil {
			return err
		}
	}
}

// formOnce tries once. It reports whether this member is part of a cluster, and if
// not, what is missing.
func (m *Member) formOnce(ctx context.Context) (done bool, missing string, err error) {
	known := m.node.Members()
	part := len(known) > 0
	if m.node.CatchingUp() { // it was stopped while it joined, and its configuration may be out of date
		part = true
	} else if part && !m.isNonVoter(known) {
		return m.rejoin(ctx, known)
	}
	if !part && m.settings.BootstrapExpect == 1 {
		return true, "", m.bootstrap()
	}
	answers := m.peers.statuses(ctx)
	for address, status := range answers {
		if len(status.Members) == 0 || status.Id == m.settings.ID {
			continue
		}
		m.logger.Info("joining the cluster", "through", address)
		return true, "", m.server.Join(ctx, append([]string{address}, m.peers.addresses...)...) // address may vanish
	}
	if part || m.settings.BootstrapExpect == 0 {
		return false, "a member of the cluster at " + strings.Join(m.peers.addresses, ", "), nil
	}
	members, err := founders(answers)
	if err != nil {
		return false, "", err
	}
	if len(members) < m.settings.BootstrapExpect {
		return false, fmt.Sprintf("%d members; %d are running", m.settings.BootstrapExpect, len(members)), nil
	}
	// The member with the smallest id starts the cluster. The others join it.
	for _, other := range members {
		if other.ID < m.settings.ID {
			return false, "member " + other.ID + " to start the cluster", nil
		}
	}
	return true, "", m.bootstrap()
}

// rejoin is formOnce for a voter. If its Raft address has changed, the configuration has to follow: a leader calls a
// member at the address in it.
func (m *Member) rejoin(ctx context.Context, known []raftstore.Member) (done bool, missing string, err error) {
	self := raftstore.Member{ID: m.settings.ID, Address: m.node.Address(), Voter: true}
	switch leader, _ := m.node.Leader(); {
	case leader == self.ID && !slices.Contains(known, self):
		err := m.node.Join(ctx, m.node)
		if errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrUncertain) { // it does not serve
			return false, "", nil
		}
		return err == nil, "", err
	case leader != "":
		return true, "", nil
	}
	answers := m.peers.statuses(ctx)
	if through := m.moved(known, answers); len(through) > 0 {
		m.logger.Info("telling the cluster the new Raft address of this member", "address", self.Address, "through", through)
		return true, "", m.server.Join(ctx, through...)
	}
	return false, "", m.checkRemoved(answers)
}

// moved returns the API addresses of members that know this one at another Raft address, from before its restart: their
// leader cannot reach it. Only members that this one knows at their address count: another cluster may have one with
// the same id. There are none while a process that has this id runs at another address: one of the two is a copy.
func (m *Member) moved(known []raftstore.Member, answers map[string]*pb.StatusResponse) (through []string) {
	elsewhere := func(o *pb.Member) bool { return o.Id == m.settings.ID && o.RaftAddress != m.node.Address() }
	for address, status := range answers {
		own := raftstore.Member{ID: status.Id, Address: status.RaftAddress, Voter: true}
		switch {
		case elsewhere(&pb.Member{Id: status.Id, RaftAddress: status.RaftAddress}):
			return nil
		case slices.Contains(known, own) && slices.ContainsFunc(status.Members, elsewhere):
			through = append(through, address)
		}
	}
	return through
}

// checkRemoved returns an error if this member was removed while it was stopped: another member has applied everything
// that is in the log of this one, and does not know it.
func (m *Member) checkRemoved(answers map[string]*pb.StatusResponse) error {
	last := m.node.Status().LastIndex
	for address, status := range answers {
		known := slices.ContainsFunc(status.Members, func(other *pb.Member) bool { return other.Id == m.settings.ID })
		if len(status.Members) > 0 && status.AppliedIndex >= last && !known {
			return fmt.Errorf("%w: the cluster at %s has removed member %s; empty the data folder %s to let it join again",
				ErrIdentity, address, m.settings.ID, m.settings.Data)
		}
	}
	return nil
}

// isNonVoter reports whether this member has joined but was stopped before it became
// a voter.
func (m *Member) isNonVoter(members []raftstore.Member) bool {
	return slices.ContainsFunc(members, func(o raftstore.Member) bool { return o.ID == m.settings.ID && !o.Voter })
}

func (m *Member) bootstrap() error {
	err := m.node.Bootstrap()
	if errors.Is(err, raftstore.ErrBootstrapped) && len(m.node.Members()) > 0 { // otherwise it was interrupted
		return nil
	}
	if err == nil {
		m.founded.Store(true)
		m.logger.Info("started a new cluster")
	}
	return err
}

// founders returns the members that answered. Their ids and addresses must differ.
func founders(answers map[string]*pb.StatusResponse) ([]raftstore.Member, error) {
	byID, byRaft := map[string]string{}, map[string]string{}
	var members []raftstore.Member
	for address, status := range answers {
		if other, twice := byID[status.Id]; twice {
			return nil, fmt.Errorf("%w: the members at %s and %s have the same id %q; give each its own id", ErrFormation, other,
				address, status.Id)
		}
		if other, twice := byRaft[status.RaftAddress]; twice {
			return nil, fmt.Errorf("%w: the members at %s and %s have the same raft-advertise address %s", ErrFormation, other,
				address, status.RaftAddress)
		}
		byID[status.Id], byRaft[status.RaftAddress] = address, address
		members = append(members, raftstore.Member{ID: status.Id, Address: status.RaftAddress})
	}
	return members, nil
}

// peers are the addresses in join, possibly including this member.
type peers struct {
	addresses []string
	tls       func() *tls.Config // returns nil without TLS
	secret    func() string      // returns "" without users
	logger    *slog.Logger
}

// statuses requests the status of all peers concurrently and returns the answers by
// address.
func (p *peers) statuses(ctx context.Context) map[string]*pb.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := map[string]*pb.StatusResponse{}
	for _, address := range p.addresses {
		wg.Go(func() {
			conn, err := grpc.NewClient("passthrough:///"+address, secret.DialOptions(p.tls(), p.secret())...)
			if err != nil {
				return
			}
			defer conn.Close()
			status, err := pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
			if errors.Is(wire.FromStatus(err), wire.ErrUnauthenticated) {
				p.logger.Warn("another member rejects the secret of this member", "member", address, "error", err,
					"hint", "secret-file must contain the secret of a user that all members have")
			}
			if err != nil {
				return // the caller retries
			}
			mu.Lock()
			defer mu.Unlock()
			answers[address] = status
		})
	}
	wg.Wait()
	return answers
}

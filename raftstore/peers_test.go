package raftstore

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/transport"
)

// naming names members in a certificate.
func naming(ids ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		for _, id := range ids {
			c.URIs = append(c.URIs, transport.MemberURI(id))
		}
	}
}

// withCertificates gives a node a certificate that names it.
func withCertificates(a *testserver.Authority) func(*Config) {
	return func(c *Config) {
		own := &tls.Config{Certificates: []tls.Certificate{a.Issue(c.ID, naming(c.ID))}, ClientCAs: a.Pool, RootCAs: a.Pool,
			ClientAuth: tls.RequireAndVerifyClientCert}
		c.TLS = func() *tls.Config { return own }
	}
}

// intruder is a Raft transport that connects with any certificate and checks nothing.
type intruder struct {
	net.Listener
	config *tls.Config
}

func (i intruder) Dial(address raft.ServerAddress, _ time.Duration) (net.Conn, error) {
	return tls.Dial("tcp", string(address), i.config)
}

// intrude returns a transport that presents a certificate, or none.
func intrude(t *testing.T, a *testserver.Authority, own ...tls.Certificate) *raft.NetworkTransport {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: intruder{listener,
		&tls.Config{RootCAs: a.Pool, Certificates: own}},
		MaxPool: 1, Timeout: testTimeout, Logger: hclog.NewNullLogger()})
	t.Cleanup(func() { n.Close() })
	return n
}

// depose sends the requests that would end the leadership of a node.
func depose(n *raft.NetworkTransport, leader *Node, claimed string) (errs []error) {
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(claimed), Addr: []byte("127.0.0.1:1")}
	id, address := raft.ServerID(leader.ID()), raft.ServerAddress(leader.Address())
	last := leader.raft.LastIndex() + 100
	errs = append(errs, n.RequestPreVote(id, address, &raft.RequestPreVoteRequest{RPCHeader: header, Term: 100,
		LastLogIndex: last, LastLogTerm: 100},
		&raft.RequestPreVoteResponse{}))
	errs = append(errs, n.RequestVote(id, address, &raft.RequestVoteRequest{RPCHeader: header, Term: 100,
		LastLogIndex: last, LastLogTerm: 100, LeadershipTransfer: true},
		&raft.RequestVoteResponse{}))
	return append(errs, n.AppendEntries(id, address, &raft.AppendEntriesRequest{RPCHeader: header, Term: 100},
		&raft.AppendEntriesResponse{}))
}

// A member accepts no request of a peer whose certificate names no member of the
// cluster. With the certificate of a member, the same requests depose the leader.
func TestRaftPortAcceptsMembersOnly(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	log := &lockedBuffer{}
	c := startTCP(t, 3, DefaultLogStore, slowTimeouts, withCertificates(a), func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	s := retrying{openSession(t, c.backend(), time.Hour)}
	_, err := s.Acquire(testContext(t), lockRequest(1, "a"))
	require.NoError(t, err)
	c.agree()

	leader := c.leader()
	member := c.nodes[2].ID()
	nonce := engine.Nonce(1)
	expired := a.Issue(member, func(c *x509.Certificate) {
		naming(member)(c)
		c.NotAfter = c.NotBefore.Add(time.Hour)
	})
	for _, peer := range []struct {
		name, claimed string
		own           []tls.Certificate
	}{
		{"client", member, []tls.Certificate{a.Issue("client", nil)}},
		{"no member", "n9", []tls.Certificate{a.Issue("n9", naming("n9"))}},
		{"expired", member, []tls.Certificate{expired}}, // later refusals may not be logged
		{"no member with the name of a member", member, []tls.Certificate{a.Issue("n9", naming("n9"))}},
		{"client with the name of a member", member, []tls.Certificate{a.Issue(member, nil)}},
		{"another authority", member, []tls.Certificate{testserver.NewAuthority(t).Issue(member, naming(member))}},
		{"no certificate", member, nil},
	} {
		name := peer.name
		for _, err := range depose(intrude(t, a, peer.own...), leader, peer.claimed) {
			require.Error(t, err, name)
		}
		nonce++
		_, err := s.Acquire(testContext(t), lockRequest(nonce, fencing.Resource(name)))
		require.NoError(t, err, name)
		require.Less(t, leader.raft.CurrentTerm(), uint64(100), name)
	}
	for _, refused := range []string{"CN=client", "leased://member/n9", "expired"} {
		eventually(t, "the refusal of "+refused+" is logged", func() bool { return strings.Contains(log.String(), refused) })
	}
	for _, err := range depose(intrude(t, a, a.Issue(member, naming(member))), leader, member) {
		require.NoError(t, err)
	}
	eventually(t, "the new term", func() bool { return leader.raft.CurrentTerm() >= 100 })
}

// A member that is removed cannot send requests any more, not even over a connection
// that was open before.
func TestRemovedMemberIsDisconnected(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	c := startTCP(t, 3, DefaultLogStore, slowTimeouts, withCertificates(a))
	leader := c.leader()
	gone := c.nodes[1]
	if gone == leader {
		gone = c.nodes[2]
	}
	peer := intrude(t, a, a.Issue(gone.ID(), naming(gone.ID())))
	last := leader.raft.LastIndex()
	vote := func() error {
		return peer.RequestPreVote(raft.ServerID(leader.ID()), raft.ServerAddress(leader.Address()),
			&raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax,
				ID: []byte(gone.ID())}, Term: 1, LastLogIndex: last},
			&raft.RequestPreVoteResponse{})
	}
	require.NoError(t, vote())
	require.NoError(t, gone.Close())
	require.NoError(t, leader.Remove(testContext(t), gone.ID()))
	require.Error(t, vote(), "over the open connection")
	require.Error(t, vote(), "over a new connection")
	_, err := retrying{openSession(t, c.backend(), time.Hour)}.Acquire(testContext(t), lockRequest(1, "a"))
	require.NoError(t, err)
}

// A node that has not caught up cannot rely on its configuration, so it accepts every
// member.
func TestAcceptPeer(t *testing.T) {
	c := startMemory(t, 1)
	n := c.nodes[0]
	require.NoError(t, n.acceptPeer([]string{"other", "n0"}))
	require.ErrorIs(t, n.acceptPeer([]string{"n1"}), transport.ErrPeer)
	n.catchUp.until.Store(1 << 40)
	require.NoError(t, n.acceptPeer([]string{"n1"}))
	n.catchUp.until.Store(0)
	require.NoError(t, c.add("joining").acceptPeer([]string{"n1"}))
}

// lockedBuffer is a bytes.Buffer for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A member that was stopped while another joined refuses the new one as its leader, and
// catches up when a member that it knows leads.
func TestStoppedMemberCatchesUpWithAMemberThatItKnows(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	change := func(config *Config) {
		slowTimeouts(config)
		config.HeartbeatTimeout = 6 * time.Second // nothing but the transfers may end a leadership
		withCertificates(a)(config)
	}
	c := startTCP(t, 3, DefaultLogStore, change)
	ctx := testContext(t)
	leader := c.leader()
	s := openSession(t, c.backend(), time.Hour)
	stopped := (slices.Index(c.nodes, leader) + 1) % 3
	require.NoError(t, c.nodes[stopped].Close())

	config := tcpConfig(t, "n3", DefaultLogStore)
	change(&config)
	fresh := openNode(t, config)
	require.NoError(t, fresh.Join(ctx, leader))
	c.nodes, c.configs = append(c.nodes, fresh), append(c.configs, config)
	require.NoError(t, leader.Transfer(ctx, fresh.ID()))
	eventually(t, "the new member leads", fresh.Leads)
	log := &lockedBuffer{}
	c.configs[stopped].Logger = slog.New(slog.NewTextHandler(log, nil))
	c.restart(stopped)
	eventually(t, "the refusal", func() bool { return strings.Contains(log.String(), "leased://member/n3") })
	require.False(t, c.nodes[stopped].hasVote("n3"), "it does not know the new member")

	require.NoError(t, fresh.Transfer(ctx, leader.ID()))
	eventually(t, "the old leader leads", leader.Leads)
	_, err := retrying{openSameSession(t, c, s)}.Acquire(ctx, lockRequest(1, "a"))
	require.NoError(t, err)
	c.agree()
	require.True(t, c.nodes[stopped].hasVote("n3"))
}

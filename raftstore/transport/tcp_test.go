package transport_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/transport"
)

// movedClock is the system clock plus an offset.
type movedClock struct{ offset atomic.Int64 }

func (c *movedClock) Now() engine.Instant {
	return engine.SystemClock().Now().Add(time.Duration(c.offset.Load()))
}

// peer is a transport whose certificates can be replaced, and which counts the requests
// that it receives.
type peer struct {
	*transport.TCP
	id       string
	clock    movedClock
	tls      atomic.Pointer[tls.Config]
	refuses  atomic.Bool // every peer
	received atomic.Int64
	log      *logged
}

// logged collects log messages.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// naming names members in a certificate.
func naming(ids ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		for _, id := range ids {
			c.URIs = append(c.URIs, transport.MemberURI(id))
		}
	}
}

// mutual is the TLS configuration of a node.
func mutual(a *testserver.Authority, own tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: a.Pool, RootCAs: a.Pool,
		ClientAuth: tls.RequireAndVerifyClientCert}
}

// listen starts a peer that answers every request.
func listen(t *testing.T, a *testserver.Authority, id string) *peer {
	t.Helper()
	p := &peer{id: id, log: &logged{}}
	p.tls.Store(mutual(a, a.Issue(id, naming(id))))
	tcp, err := transport.Listen(transport.Config{ID: id, Address: "127.0.0.1:0", TLS: p.tls.Load, Clock: &p.clock,
		Logger: hclog.New(&hclog.LoggerOptions{Output: p.log}),
		Accept: func([]string) error {
			if p.refuses.Load() {
				return fmt.Errorf("%w: not in the configuration", transport.ErrPeer)
			}
			return nil
		}})
	require.NoError(t, err)
	p.TCP = tcp
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); tcp.Close() })
	go func() {
		for {
			select {
			case rpc := <-tcp.Consumer():
				p.received.Add(1)
				rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
			case <-stop:
				return
			}
		}
	}()
	return p
}

// call sends a request to the address of a peer, which should be member id.
func (p *peer) call(to *peer, id string) error {
	return p.AppendEntries(raft.ServerID(id), to.LocalAddr(), &raft.AppendEntriesRequest{Term: 1,
		RPCHeader: raft.RPCHeader{ID: []byte(p.id)}}, &raft.AppendEntriesResponse{})
}

func TestMemberIDs(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	for _, id := range []string{"n1", "member-2.example.com", "a b", "ä/ö", "x%2Fy", "q?r#s"} {
		cert := a.Issue("several", naming("other", id)).Leaf
		require.Equal(t, []string{"other", id}, transport.MemberIDs(cert))
		require.True(t, transport.Names(cert, id))
		require.False(t, transport.Names(cert, "several"), "the common name counts for nothing")
	}
	for _, text := range []string{"leased://member/", "leased://member", "leased://client/n1", "other://member/n1",
		"leased://member/n1?x=y",
		"leased://user@member/n1", "leased://member:1/n1", "leased:member/n1", "leased://member/n1#f"} {
		cert := a.Issue("malformed", func(c *x509.Certificate) {
			uri := *transport.MemberURI("")
			parsed, err := uri.Parse(text)
			require.NoError(t, err)
			c.URIs = append(c.URIs, parsed)
		}).Leaf
		require.Empty(t, transport.MemberIDs(cert), text)
	}
}

// A node does not start with a certificate that names another member, or none.
func TestOwnCertificateNamesTheNode(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	for _, own := range []tls.Certificate{a.Issue("n1", nil), a.Issue("n1", naming("n2"))} {
		config := mutual(a, own)
		_, err := transport.Listen(transport.Config{ID: "n1", Address: "127.0.0.1:0", TLS: func() *tls.Config {
			return config
		}})
		require.ErrorIs(t, err, transport.ErrConfig)
		require.ErrorContains(t, err, "leased://member/n1")
	}
}

// A call reaches only the member that it is for: another member that answers at the
// address gets no request.
func TestDialedMemberIsChecked(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	n1, n2 := listen(t, a, "n1"), listen(t, a, "n2")
	require.NoError(t, n1.call(n2, "n2"))
	err := n1.call(n2, "n3")
	require.ErrorIs(t, err, transport.ErrPeer)
	require.ErrorContains(t, err, `the call is to member "n3"`)
	require.EqualValues(t, 1, n2.received.Load())
	n2.tls.Store(mutual(a, a.Issue("client", nil))) // a server that names no member
	n2.Recheck()
	require.NoError(t, n1.call(n2, "n2"), "the connection is as before")
	n3 := listen(t, a, "n3")
	require.ErrorIs(t, n3.call(n2, "n2"), transport.ErrPeer)
}

// Connections with these certificates are refused before a request is read, and
// logged.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	for name, c := range map[string]struct {
		own  func(a *testserver.Authority) []tls.Certificate
		says string
	}{
		"API client": {func(a *testserver.Authority) []tls.Certificate {
			return []tls.Certificate{a.Issue("client", nil)}
		}, "names no member"},
		"expired": {func(a *testserver.Authority) []tls.Certificate {
			return []tls.Certificate{a.Issue("n2", func(c *x509.Certificate) {
				naming("n2")(c)
				c.NotAfter = c.NotBefore.Add(time.Hour)
			})}
		}, "expired"},
		"another authority": {func(*testserver.Authority) []tls.Certificate {
			return []tls.Certificate{testserver.NewAuthority(t).Issue("n2", naming("n2"))}
		}, "unknown authority"},
		"no certificate": {func(*testserver.Authority) []tls.Certificate { return nil }, "didn't provide a certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n1 := listen(t, a, "n1")
			require.Error(t, speak(t, n1.LocalAddr(), &tls.Config{RootCAs: a.Pool, Certificates: c.own(a)}))
			require.Zero(t, n1.received.Load())
			require.Eventually(t, func() bool {
				return strings.Contains(n1.log.String(), c.says)
			}, time.Minute, time.Millisecond)
			require.Contains(t, n1.log.String(), "refused a connection of the Raft port")
		})
	}
	t.Run("not in the configuration", func(t *testing.T) {
		t.Parallel()
		n1, n2 := listen(t, a, "n1"), listen(t, a, "n2")
		n1.refuses.Store(true)
		require.Error(t, n2.call(n1, "n1"))
		require.Zero(t, n1.received.Load())
		require.Eventually(t, func() bool {
			return strings.Contains(n1.log.String(), "leased://member/n2")
		}, time.Minute, time.Millisecond)
	})
}

// anyStream connects with any certificate.
type anyStream struct {
	net.Listener
	config *tls.Config
}

func (s anyStream) Dial(address raft.ServerAddress, _ time.Duration) (net.Conn, error) {
	return tls.Dial("tcp", string(address), s.config)
}

// speak sends a request with a transport that does not check anything.
func speak(t *testing.T, address raft.ServerAddress, config *tls.Config) error {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: anyStream{listener, config}, MaxPool: 1,
		Timeout: time.Minute,
		Logger:  hclog.NewNullLogger()})
	t.Cleanup(func() { n.Close() })
	return n.AppendEntries("n1", address, &raft.AppendEntriesRequest{Term: 100,
		RPCHeader: raft.RPCHeader{ID: []byte("n2")}}, &raft.AppendEntriesResponse{})
}

// A member cannot send requests in the name of another.
func TestSenderIsChecked(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	n1, n2 := listen(t, a, "n1"), listen(t, a, "n2")
	require.NoError(t, n2.call(n1, "n1"))
	n2.id = "n3"
	require.Error(t, n2.call(n1, "n1"))
	n2.id = ""
	require.Error(t, n2.call(n1, "n1"))
	require.EqualValues(t, 1, n1.received.Load())
	require.Eventually(t, func() bool {
		return strings.Contains(n1.log.String(), "as its sender")
	}, time.Minute, time.Millisecond)
}

// An open connection is closed when it would no longer be accepted, on both sides.
func TestOpenConnectionsAreCheckedAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(p *peer, a *testserver.Authority){
		"another authority": func(p *peer, _ *testserver.Authority) {
			other := testserver.NewAuthority(t)
			p.tls.Store(mutual(other, other.Issue(p.id, naming(p.id))))
		},
		"expired": func(p *peer, _ *testserver.Authority) { p.clock.offset.Store(int64(200 * 365 * 24 * time.Hour)) },
		"removed": func(p *peer, _ *testserver.Authority) { p.refuses.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := testserver.NewAuthority(t)
			n1, n2 := listen(t, a, "n1"), listen(t, a, "n2")
			require.NoError(t, n1.call(n2, "n2"))
			change(n2, a) // the side that accepted
			n2.Recheck()
			require.Error(t, n1.call(n2, "n2"))
			require.Error(t, n1.call(n2, "n2"), "a new connection is refused, too")
			require.EqualValues(t, 1, n2.received.Load())
			if name == "removed" {
				return // a node calls only members of its configuration
			}
			n3, n4 := listen(t, a, "n3"), listen(t, a, "n4")
			require.NoError(t, n3.call(n4, "n4"))
			change(n3, a) // the side that dialed
			n3.Recheck()
			require.Error(t, n3.call(n4, "n4"))
			require.Error(t, n3.call(n4, "n4"))
			require.EqualValues(t, 1, n4.received.Load())
		})
	}
}

// A certificate that expires is noticed without a call of Recheck.
func TestExpiryIsNoticed(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	n1, n2 := listen(t, a, "n1"), listen(t, a, "n2")
	require.NoError(t, n1.call(n2, "n2"))
	n2.clock.offset.Store(int64(200 * 365 * 24 * time.Hour))
	require.Eventually(t, func() bool { return n1.call(n2, "n2") != nil }, time.Minute, 10*time.Millisecond)
}

// Refusals do not fill the log.
func TestRefusalsAreLoggedAtALimitedRate(t *testing.T) {
	t.Parallel()
	a := testserver.NewAuthority(t)
	n1 := listen(t, a, "n1")
	client := &tls.Config{RootCAs: a.Pool, Certificates: []tls.Certificate{a.Issue("client", nil)}}
	for range 30 {
		require.Error(t, speak(t, n1.LocalAddr(), client))
	}
	n1.clock.offset.Store(int64(time.Hour))
	require.Error(t, speak(t, n1.LocalAddr(), client))
	later := regexp.MustCompile(`notLogged=[1-9]`)
	require.Eventually(t, func() bool { return later.MatchString(n1.log.String()) }, time.Minute, time.Millisecond)
	require.LessOrEqual(t, strings.Count(n1.log.String(), "refused a connection"), 20,
		"ten before and ten after the step of the clock")
}

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
	"github.com/leased-project/leased/raftstore"
)

const (
	// forwarded marks a request that a member has forwarded. It is not forwarded
	// twice: two members that take each other for the leader must not pass it to
	// and fro.
	forwarded = "Leased-Forwarded"
	// leaderPatience is how long a plain HTTP request waits for a leader.
	leaderPatience = 3 * time.Second
)

// isNotLeader reports whether a call failed only because this member does not
// lead, so that the leader can be asked.
func isNotLeader(err error) bool {
	var node *raftstore.NotLeaderError
	var api *wire.NotLeaderError
	return (errors.As(err, &node) || errors.As(err, &api)) && !errors.Is(err, engine.ErrUncertain)
}

// atLeader runs a call here, and forwards the request to the leader if the call
// fails with a not-leader error. It waits a little if there is no leader. call
// answers the request unless it returns an error.
func (b *bridge) atLeader(w http.ResponseWriter, r *http.Request, call func() error) {
	patience := time.NewTimer(leaderPatience)
	defer patience.Stop()
	look := time.NewTicker(leadershipPause)
	defer look.Stop()
	for {
		if call() == nil {
			return
		}
		if r.Header.Get(forwarded) != "" {
			b.answer(w, nil, b.server.notLeader())
			return
		}
		for leads := false; !leads; {
			leader := b.server.router.leaderAPI()
			switch {
			case b.server.config.Node.Leads():
				leads = true
				continue
			case leader != "" && leader != b.server.address:
				b.pass(w, r, leader)
				return
			}
			select {
			case <-look.C:
			case <-patience.C:
				b.answer(w, nil, b.server.notLeader())
				return
			case <-r.Context().Done():
				return
			}
		}
	}
}

// pass forwards a request to the leader.
func (b *bridge) pass(w http.ResponseWriter, r *http.Request, leader string) {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: leader}) // the transport adds TLS
			p.SetXForwarded()
			p.Out.Header.Del("Origin") // it was checked here
			p.Out.Header.Del("Sec-Fetch-Site")
			p.Out.Header.Set(forwarded, b.server.config.Node.ID())
		},
		Transport:     b.transport(),
		FlushInterval: -1, // events of a watch are sent one by one
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			b.answer(w, nil, &forwardError{leader: leader, err: err})
		},
	}
	proxy.ServeHTTP(w, r)
}

func (b *bridge) transport() *http.Transport {
	b.once.Do(func() {
		b.peers = &http.Transport{DialContext: b.dialPeer, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}
	})
	return b.peers
}

// dialPeer connects to another member, with the present TLS settings.
func (b *bridge) dialPeer(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: reachTime}
	if config := b.server.config.PeerTLS(); config != nil {
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil || b.server.config.Users == nil {
		return conn, err
	}
	if err := secret.CheckConn(conn); err != nil { // the request has the secret of its user
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// forwardError says that a request was lost on its way to the leader. It may have
// arrived: it matches engine.ErrUncertain.
type forwardError struct {
	leader string
	err    error
}

// Error names the leader.
func (e *forwardError) Error() string {
	return "forward to the leader at " + e.leader + ": " + e.err.Error()
}

// Is makes errors.Is match engine.ErrUncertain.
func (e *forwardError) Is(target error) bool { return target == engine.ErrUncertain }

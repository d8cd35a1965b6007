package httpapi

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/secret"
)

// forwardedHeader marks a request that a member has forwarded. Members do not
// forward it again, so that two members that consider each other the leader do not
// send it back and forth.
const forwardedHeader = "Leased-Forwarded"

// forwardable runs a call on this member. If it returns a not-leader error,
// forwardable waits for a leader and forwards the request to it. The call writes
// the answer unless it returns an error.
func (h *Handler) forwardable(w http.ResponseWriter, r *http.Request, call func() error) {
	err := call()
	if err == nil {
		return
	}
	if r.Header.Get(forwardedHeader) != "" {
		h.answer(w, nil, err)
		return
	}
	leader, err := h.Router.AwaitLeader(r.Context())
	if err == nil && leader != h.Router.Address {
		h.forward(w, r, leader)
		return
	}
	if err == nil { // this member leads now
		err = call()
	}
	if err != nil {
		h.answer(w, nil, err)
	}
}

// forward sends a request to the leader and returns its answer. This member
// authenticates itself and names the user, because it cannot pass on a client certificate. The
// leader checks the user's rights again.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, leader string) {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: leader}) // the transport adds TLS
			p.SetXForwarded()
			p.Out.Header.Del("Origin") // ServeHTTP has checked it
			p.Out.Header.Del("Sec-Fetch-Site")
			p.Out.Header.Set(forwardedHeader, h.Router.Node.ID())
			if user, own := auth.UserName(r.Context()), h.Peers.Secret(); user != "" && own != "" {
				p.Out.Header.Set("Authorization", secret.Header(own))
				p.Out.Header.Set(auth.UserHeader, user)
			}
		},
		Transport:     h.transport,
		FlushInterval: -1, // send each event of a watch at once
		// A leader that stops in the middle of an answer ends the caller's connection.
		ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			// The leader may have received the request.
			h.answer(w, nil, fmt.Errorf("%w: forward to the leader at %s: %v", engine.ErrUncertain, leader, err))
		},
	}
	proxy.ServeHTTP(w, r)
}

package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// KnownHost reports whether the Host of a request is empty, an IP address, localhost, or the
// host of one of these addresses. A site can give its own name the address of the machine
// on which it is visited (DNS rebinding). Its pages then have the same origin as this
// server, but their requests still have the name of the site as Host.
func KnownHost(host string, addresses ...string) bool {
	name := strings.ToLower((&url.URL{Host: host}).Hostname())
	if _, err := netip.ParseAddr(name); err == nil || host == "" || name == "localhost" ||
		strings.HasSuffix(name, ".localhost") {
		return true
	}
	for _, address := range addresses {
		if own, _, err := net.SplitHostPort(address); err == nil && own != "" && strings.EqualFold(own, name) {
			return true
		}
	}
	return false
}

// checkHost refuses a request for another host. Only a service that everyone on the machine
// may use needs it: the pages of another site have no secret, and no certificate for its name.
func (h *Handler) checkHost(r *http.Request) error {
	if h.Chain.Users != nil || r.TLS != nil || KnownHost(r.Host, h.Chain.Router.Address) {
		return nil
	}
	return &statusError{http.StatusMisdirectedRequest,
		fmt.Sprintf("this service has no users, and does not answer for host %q; "+
			"use its IP address, localhost or its advertised address %s, or configure users", r.Host, h.Chain.Router.Address)}
}

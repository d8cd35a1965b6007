package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/leased-project/leased/lease/engine"
)

// ErrPeer is the refusal of a peer by its certificate; the error says why.
var ErrPeer = errors.New("peer refused")

// check returns an error if the certificate of a peer is not, or no longer, acceptable:
// it must be valid, it must name the member that this node dialed, and for a connection
// that the peer opened, Config.Accept must accept the members that it names.
func (s *stream) check(state tls.ConnectionState, dialed string) error {
	if len(state.PeerCertificates) == 0 {
		return fmt.Errorf("%w: it has no certificate", ErrPeer)
	}
	if err := s.verify(state.PeerCertificates, dialed); err != nil {
		return fmt.Errorf("%w: %w", ErrPeer, err)
	}
	leaf := state.PeerCertificates[0]
	ids := MemberIDs(leaf)
	switch {
	case len(ids) == 0:
		return fmt.Errorf("%w: its certificate (%s) names no member: it belongs to an API client, or lacks the URI of "+
			"its member, as in %s",
			ErrPeer, leaf.Subject, MemberURI("ID"))
	case dialed == "":
		return s.config.Accept(ids)
	case !slices.Contains(ids, dialed):
		return fmt.Errorf("%w: its certificate (%s) names the members %q, but the call is to member %q; check the "+
			"addresses of the members and their certificates",
			ErrPeer, leaf.Subject, ids, dialed)
	}
	return nil
}

// verify checks a chain of certificates against the current authority and the clock.
func (s *stream) verify(chain []*x509.Certificate, dialed string) error {
	current := s.config.TLS()
	options := x509.VerifyOptions{Roots: current.ClientCAs, Intermediates: x509.NewCertPool(),
		CurrentTime: s.config.Clock.Now().Time(),
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if dialed != "" {
		options.Roots, options.KeyUsages = current.RootCAs, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, other := range chain[1:] {
		options.Intermediates.AddCert(other)
	}
	_, err := chain[0].Verify(options)
	return err
}

const (
	// maxRefusals is how many refusals are logged in one refusalWindow. Others are
	// counted.
	maxRefusals   = 10
	refusalWindow = time.Minute
)

// refusals logs refused connections, at a limited rate: anyone who reaches the port can
// cause them.
type refusals struct {
	logger hclog.Logger
	clock  engine.Clock

	mu      sync.Mutex
	began   engine.Instant
	logged  int
	skipped int
}

// log records the refusal of a peer.
func (r *refusals) log(remote net.Addr, state tls.ConnectionState, err error) {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() || now.Since(r.began) >= refusalWindow {
		r.began, r.logged = now, 0
	}
	if r.logged >= maxRefusals {
		r.skipped++
		return
	}
	r.logged++
	subject, names := "", []string(nil)
	if leaf := certificateOf(state, err); leaf != nil {
		subject, names = leaf.Subject.String(), namesOf(leaf)
	}
	r.logger.Warn("refused a connection of the Raft port", "remote", remote, "subject", subject, "names", names, "error",
		err, "notLogged", r.skipped,
		"hint", hint(err))
	r.skipped = 0
}

// hint returns what an operator can do about a refusal.
func hint(err error) string {
	var version *versionError
	if errors.As(err, &version) || errors.Is(err, errMessage) {
		return "the peer seems to run another build: compare the versions of the members (leased cluster status), and " +
			"upgrade one of them"
	}
	return "only members may connect: give each member a certificate with its own URI (leased certs), and clients the " +
		"address of the API"
}

// certificateOf returns the certificate that a peer presented, nil if there is none.
func certificateOf(state tls.ConnectionState, err error) *x509.Certificate {
	var failed *tls.CertificateVerificationError
	switch {
	case len(state.PeerCertificates) > 0:
		return state.PeerCertificates[0]
	case errors.As(err, &failed) && len(failed.UnverifiedCertificates) > 0:
		return failed.UnverifiedCertificates[0]
	}
	return nil
}

// namesOf returns the subject alternative names of a certificate.
func namesOf(leaf *x509.Certificate) []string {
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	return names
}

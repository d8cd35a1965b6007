package transport

import (
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
)

// MemberURI returns the name of a member in a certificate, a subject alternative name of
// type URI: leased://member/ID. A certificate may name several members.
func MemberURI(id string) *url.URL {
	return &url.URL{Scheme: "leased", Host: "member", Path: "/" + id}
}

// MemberIDs returns the IDs of the members that a certificate names. It is empty for
// the certificate of an API client. It does not verify the certificate.
func MemberIDs(cert *x509.Certificate) []string {
	var ids []string
	for _, uri := range cert.URIs {
		id := strings.TrimPrefix(uri.Path, "/")
		if id != "" && uri.String() == MemberURI(id).String() {
			ids = append(ids, id)
		}
	}
	return ids
}

// Names reports whether a certificate names a member.
func Names(cert *x509.Certificate, id string) bool { return slices.Contains(MemberIDs(cert), id) }

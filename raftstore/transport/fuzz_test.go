package transport

import (
	"crypto/x509"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzMemberIDs checks that a certificate names a member only by the one URI of that
// member: no other spelling is read as its id.
func FuzzMemberIDs(f *testing.F) {
	for _, text := range []string{"leased://member/n1", "leased://member/", "leased://member//n1", "leased://member/n1/",
		"leased://MEMBER/n1",
		"leased://member/n1?x", "leased://member/n1#x", "leased://user@member/n1", "leased://member:1/n1",
		"leased:/member/n1", "leased://member/n%31", "leased://member/a%2fb", "http://member/n1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		uri, err := url.Parse(text)
		if err != nil {
			return
		}
		for _, id := range MemberIDs(&x509.Certificate{URIs: []*url.URL{uri}}) {
			require.NotEmpty(t, id)
			require.Equal(t, MemberURI(id).String(), uri.String())
			require.Equal(t, "leased", uri.Scheme)
			require.Equal(t, "member", uri.Host)
			require.Nil(t, uri.User)
			require.True(t, Names(&x509.Certificate{URIs: []*url.URL{uri}}, id))
		}
	})
}

package httpgate_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/httpgate"
)

// FuzzPath checks that a path names a resource only if services agree on what it is:
// two paths that a service may treat as one have the same name, or none.
func FuzzPath(f *testing.F) {
	for _, p := range []string{"/orders/7", "/orders/7/", "/orders//7", "/orders/./7", "/orders/7/items/1", "/orders/%37",
		"/orders/a%2fb", "/orders/a;b", `/orders/a\b`, "/orders/7.", "/orders/7 ", "*", "", "/Orders/7"} {
		f.Add(p)
	}
	name, err := httpgate.FromPath("/orders/{id}/{rest...}=orders/{id}", "/{all...}=other/{all}")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.ParseRequestURI(text)
		if err != nil {
			return
		}
		resource, err := name(&http.Request{Method: http.MethodPost, URL: u})
		if err != nil {
			require.ErrorIs(t, err, fencing.ErrInvalidResource)
			return
		}
		require.NoError(t, resource.Validate())
		require.Equal(t, path.Clean(u.Path), u.Path)
		require.False(t, strings.ContainsAny(u.Path, `;\`))
		segments := strings.Split(u.Path[1:], "/")
		if segments[0] == "orders" && len(segments) > 1 {
			require.Equal(t, "orders/"+segments[1], string(resource))
		} else {
			require.Equal(t, "other/"+u.Path[1:], string(resource))
		}
	})
}

// FuzzHeaders checks that the token of a request is the only value of its header in
// its only form, and that a problem of a server is read without a panic.
func FuzzHeaders(f *testing.F) {
	f.Add("7", "", `{"type":"urn:leased:problem:stale-token","token":1,"mark":2,"resource":"a"}`)
	f.Add("7", "8", `{"type":"urn:leased:problem:token-jump"}`)
	f.Add("+7", "", `{"token":-1}`)
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, first, second, body string) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Add(fencing.Header, first)
		if second != "" {
			r.Header.Add(fencing.Header, second)
		}
		token, err := httpgate.Token(r)
		if err == nil {
			require.Empty(t, second)
			require.Equal(t, first, token.String())
		} else {
			require.Equal(t, fencing.None, token)
		}
		response := &http.Response{StatusCode: 412, Header: http.Header{"Content-Type": {httpgate.ProblemType}},
			Body: io.NopCloser(strings.NewReader(body))}
		require.Error(t, httpgate.Check(response))
	})
}

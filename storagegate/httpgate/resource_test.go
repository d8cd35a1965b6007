package httpgate_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/httpgate"
)

func TestFromPath(t *testing.T) {
	resource, err := httpgate.FromPath("/orders/{id}/{rest...}=orders/{id}", "/files/{path...}=file:{path}",
		"/config=config")
	require.NoError(t, err)
	for target, want := range map[string]fencing.Resource{
		"/orders/42":            "orders/42",
		"/orders/42/lines/7":    "orders/42",
		"/orders/%34%32":        "orders/42",
		"/orders/42?x=1":        "orders/42",
		"/orders/{rest}/a":      "orders/{rest}",
		"/files/a/b":            "file:a/b",
		"/config":               "config",
		"/orders":               "",
		"/orders/":              "",
		"/orders//42":           "",
		"/orders/42/":           "",
		"/orders/./42":          "",
		"/config/../orders/42":  "",
		"/orders/42%2Flines":    "",
		"/orders/42%2flines":    "",
		"/config/more":          "",
		"/orders/42;v=1":        "",
		"/orders/42%3Bv=1":      "",
		"/orders/42%3bv=1":      "",
		"/orders/42;/lines":     "",
		"/orders/42%20":         "",
		"/orders/42%20/lines":   "",
		"/orders/42.":           "",
		"/orders/42%2e/lines":   "",
		"/orders/42%5Clines":    "",
		"/orders/4.2":           "orders/4.2",
		"/orders/a%09b":         "",
		"/Orders/42":            "",
		"http://h/orders/42":    "orders/42",
		"/orders/42%20and%2043": "orders/42 and 43",
	} {
		got, err := resource(httptest.NewRequest("PUT", target, nil))
		require.Equal(t, want, got, target)
		if want == "" {
			require.ErrorIs(t, err, fencing.ErrInvalidResource, target)
		} else {
			require.NoError(t, err, target)
		}
	}
}

func TestFromPathRefusesBadRules(t *testing.T) {
	for _, rule := range []string{"", "/orders", "/orders=", "orders=x", "/orders/=x", "/a//b=x", "/a{b}=x", "/{a=x",
		"/a}=x",
		"/{a...}/b=x", "/{a}/{a}=x", "/{a}=x{b}", "/{a}={a", "/{a}{b}=x"} {
		_, err := httpgate.FromPath(rule)
		require.Error(t, err, rule)
	}
	_, err := httpgate.FromPath()
	require.Error(t, err)
}

func TestFromHeader(t *testing.T) {
	resource := httpgate.FromHeader("X-Resource")
	r := httptest.NewRequest("PUT", "/", nil)
	_, err := resource(r)
	require.ErrorContains(t, err, "X-Resource")
	r.Header.Set("X-Resource", "orders/42")
	got, err := resource(r)
	require.NoError(t, err)
	require.Equal(t, fencing.Resource("orders/42"), got)
	r.Header.Add("X-Resource", "orders/43")
	_, err = resource(r)
	require.ErrorIs(t, err, fencing.ErrInvalidResource)
}

package fencing_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

func TestFromValues(t *testing.T) {
	h := http.Header{}
	token, err := fencing.FromValues(h.Values(fencing.Header))
	require.NoError(t, err)
	require.Equal(t, fencing.None, token)

	h.Set("fencing-token", "34")
	token, err = fencing.FromValues(h.Values(fencing.Header))
	require.NoError(t, err)
	require.Equal(t, fencing.Token(34), token)

	h.Set(fencing.Header, "")
	_, err = fencing.FromValues(h.Values(fencing.Header))
	require.ErrorIs(t, err, fencing.ErrInvalidToken, "an empty token is malformed, not missing")

	h.Set(fencing.Header, "34")
	h.Add(fencing.Header, "35")
	_, err = fencing.FromValues(h.Values(fencing.Header))
	require.ErrorIs(t, err, fencing.ErrInvalidToken)

	require.Equal(t, strings.ToLower(fencing.Header), fencing.MetadataKey, "gRPC keys are lower case")
}

func TestEnviron(t *testing.T) {
	for _, variable := range fencing.Environ("orders/42", 34) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	r, token, err := fencing.FromEnviron()
	require.NoError(t, err)
	require.Equal(t, fencing.Resource("orders/42"), r)
	require.Equal(t, fencing.Token(34), token)
}

func TestFromEnvironNamesTheVariable(t *testing.T) {
	_, _, err := fencing.FromEnviron()
	require.ErrorContains(t, err, "read LEASED_RESOURCE: invalid resource: the variable is not set")
	t.Setenv(fencing.EnvResource, "orders/42")
	_, _, err = fencing.FromEnviron()
	require.ErrorIs(t, err, fencing.ErrNoToken)
	require.ErrorContains(t, err, "read LEASED_TOKEN: no fencing token: the variable is not set")
	t.Setenv(fencing.EnvToken, "x")
	_, _, err = fencing.FromEnviron()
	require.ErrorIs(t, err, fencing.ErrInvalidToken)
	t.Setenv(fencing.EnvToken, "0")
	_, _, err = fencing.FromEnviron()
	require.ErrorIs(t, err, fencing.ErrNoToken)
	t.Setenv(fencing.EnvResource, "a\tb")
	_, _, err = fencing.FromEnviron()
	require.ErrorIs(t, err, fencing.ErrInvalidResource)
}

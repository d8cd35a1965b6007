package httpgate_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/httpgate"
)

func TestSignedTokens(t *testing.T) {
	store := &servicetest.Store{}
	gate, err := httpgate.New(callgate.Memory(fencing.Rule{}), servicetest.ResourceOf,
		httpgate.WithVerifier(servicetest.NewVerifier(t)))
	require.NoError(t, err)
	server := httptest.NewServer(gate.Handler(store))
	t.Cleanup(server.Close)
	client := servicetest.HTTPClient{Gate: gate, URL: server.URL}
	servicetest.RequireSigned(t, store, gate.Counts, client.WriteSigned)

	value, err := client.Read(t.Context(), servicetest.SignedResource)
	require.NoError(t, err, "a read without a token passes")
	require.Equal(t, "three", value)
	_, err = client.Send(t.Context(), http.MethodGet, servicetest.SignedResource, 9, "")
	require.ErrorIs(t, err, fencing.ErrInvalidToken, "a read with a number does not raise the mark")
	_, err = httpgate.New(callgate.Memory(fencing.Rule{}), servicetest.ResourceOf, httpgate.WithVerifier(nil))
	require.ErrorContains(t, err, "the verifier is nil")
}

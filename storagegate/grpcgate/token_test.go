package grpcgate_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/grpcgate"
)

// A handler that calls a storage gate itself reads the token of its call.
func TestToken(t *testing.T) {
	token, err := grpcgate.Token(t.Context())
	require.NoError(t, err)
	require.Equal(t, fencing.None, token)
	call := metadata.NewIncomingContext(t.Context(), metadata.Pairs(fencing.MetadataKey, "7"))
	token, err = grpcgate.Token(call)
	require.NoError(t, err)
	require.Equal(t, fencing.Token(7), token)
	_, err = grpcgate.Token(metadata.NewIncomingContext(t.Context(), metadata.Pairs(fencing.MetadataKey, "seven")))
	require.Error(t, err)
}

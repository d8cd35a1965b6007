package connectgate_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/connectgate"
)

// A handler that calls a storage gate itself reads the token of its call.
func TestToken(t *testing.T) {
	header := http.Header{}
	token, err := connectgate.Token(header)
	require.NoError(t, err)
	require.Equal(t, fencing.None, token)
	header.Set(fencing.Header, "7")
	token, err = connectgate.Token(header)
	require.NoError(t, err)
	require.Equal(t, fencing.Token(7), token)
	header.Set(fencing.Header, "seven")
	_, err = connectgate.Token(header)
	require.Error(t, err)
}

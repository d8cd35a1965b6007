package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReleaseSaysWhatItDid: by session and nonce, too, only a lease that was held
// is told as released.
func TestReleaseSaysWhatItDid(t *testing.T) {
	s := startOne(t)
	_, opened := post(t, s.Address(), "/v1/open-session", `{"ttl":"1m"}`)
	acquire := func(resource string, nonce int) {
		code, granted := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":%q,"sessionId":%q,"nonce":%d}`, resource, opened["sessionId"], nonce))
		require.Equal(t, http.StatusOK, code, granted)
	}
	release := func(nonce int) any {
		code, answer := post(t, s.Address(), "/v1/release", fmt.Sprintf(`{"sessionId":%q,"nonce":%d}`, opened["sessionId"], nonce))
		require.Equal(t, http.StatusOK, code, answer)
		return answer["released"]
	}
	acquire("a", 1)
	acquire("b", 2)
	require.Nil(t, release(3), "there is no such attempt")
	require.Equal(t, true, release(1))
	require.Nil(t, release(1), "once is enough")
	require.Equal(t, true, release(2))
	code, refused := post(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":"c","sessionId":%q,"nonce":3}`, opened["sessionId"]))
	require.Equal(t, http.StatusConflict, code, "an attempt that was ended gets nothing: %v", refused)
}

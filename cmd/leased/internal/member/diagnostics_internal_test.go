package member

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Profiles have a port of their own. The API does not serve them.
func TestProfilesHaveTheirOwnPort(t *testing.T) {
	get := func(url string) (int, string) {
		request, err := http.NewRequestWithContext(testContext(t), http.MethodGet, url, nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(text)
	}
	m, _ := startMember(t, "--pprof-listen=127.0.0.1:0")
	code, text := get("http://" + m.pprofAddress + "/debug/pprof/goroutine?debug=1")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, "goroutine profile")
	code, _ = get("http://" + m.pprofAddress + "/v1/status")
	require.Equal(t, http.StatusNotFound, code)
	code, text = get("http://" + m.Address() + "/debug/pprof/goroutine?debug=1")
	require.NotEqual(t, http.StatusOK, code)
	require.NotContains(t, text, "goroutine profile")

	without, _ := startMember(t)
	require.Empty(t, without.pprofAddress, "off by default")
	require.Nil(t, without.tracer)
}

package member

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
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
	port := m.ports[0].Addr
	code, text := get("http://" + port + "/debug/pprof/goroutine?debug=1")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, "goroutine profile")
	code, _ = get("http://" + port + "/v1/status")
	require.Equal(t, http.StatusNotFound, code)
	code, text = get("http://" + m.Address() + "/debug/pprof/goroutine?debug=1")
	require.NotEqual(t, http.StatusOK, code)
	require.NotContains(t, text, "goroutine profile")

	without, _ := startMember(t)
	require.Empty(t, without.ports, "off by default")
	require.Nil(t, without.tracer)
}

// A site whose name leads to the address of the profiles (DNS rebinding) cannot read them.
func TestProfilesOfForeignHosts(t *testing.T) {
	for host, code := range map[string]int{"example.com:6060": http.StatusMisdirectedRequest,
		"127.0.0.1:6060": http.StatusOK, "localhost:6060": http.StatusOK} {
		request, answer := httptest.NewRequest(http.MethodGet, "http://"+host+"/debug/pprof/cmdline", nil),
			httptest.NewRecorder()
		pprofHandler().ServeHTTP(answer, request)
		require.Equal(t, code, answer.Code, host)
	}
}

// A member exports the spans of its calls, the last ones when it stops.
func TestMemberExportsTraces(t *testing.T) {
	exported := make(chan string, 16)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
		exported <- r.URL.Path + " " + string(text)
	}))
	defer collector.Close()
	t.Run("member", func(t *testing.T) { // it stops at the end
		m, _ := startMember(t, "--trace-endpoint="+collector.URL)
		require.Eventually(t, m.Node().Leads, testTimeout, time.Millisecond)
		_, err := pb.NewLeaseServiceClient(dial(t, m, "")).Acquire(testContext(t), &pb.AcquireRequest{Resource: "jobs/7"})
		require.NoError(t, err)
	})
	all := ""
	for len(exported) > 0 { // the spans may have been exported in several batches
		all += <-exported
	}
	require.Contains(t, all, "/v1/traces ")
	require.Contains(t, all, "jobs/7")
	require.Contains(t, all, "leased.Acquire")
}

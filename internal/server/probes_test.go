package server_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/leased-project/leased/api/leased/v1"
)

// get returns the status and the body of a GET request.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(testContext(t), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// A member that shuts down is alive and serves, but is not ready.
func TestStoppingMemberIsNotReady(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, path := range []string{"/livez", "/readyz"} {
		status, body := get(t, "http://"+s.Address()+path)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "ok\n", body)
	}
	s.Stopping()
	status, body := get(t, "http://"+s.Address()+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "not ready: ")
	require.Contains(t, body, "is shutting down")
	status, _ = get(t, "http://"+s.Address()+"/livez")
	require.Equal(t, http.StatusOK, status)
	conn := dial(t, s.Address())
	eventually(t, "the gRPC health service agrees", func() bool {
		response, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(),
			&grpc_health_v1.HealthCheckRequest{})
		return err == nil && response.Status == grpc_health_v1.HealthCheckResponse_NOT_SERVING
	})
	_, err := pb.NewLeaseServiceClient(conn).Acquire(testContext(t), &pb.AcquireRequest{Resource: "a"})
	require.NoError(t, err)
}

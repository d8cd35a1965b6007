//go:build linux

package abuse

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/testserver"
)

// list returns a JSON list of names.
func list(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%q", fmt.Sprint("lock/", i))
	}
	return "[" + strings.Join(names, ",") + "]"
}

// keys returns a JSON object with fields.
func keys(n, size int) string {
	fields := make([]string, n)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"k%d":%q`, i, strings.Repeat("x", size))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// Requests that exceed a limit are refused with the code of the limit, grant nothing,
// and are not kept in memory.
func TestOversizedRequests(t *testing.T) {
	s := start(t)
	before, others := s.memory("VmRSS"), s.bystander()
	requests := map[string]struct {
		body   string
		status int
		code   string
	}{
		"name of 513 bytes":     {fmt.Sprintf(`{"resource":%q}`, strings.Repeat("x", 513)), 400, "invalid-resource"},
		"name of 60,000 bytes":  {fmt.Sprintf(`{"resource":%q}`, strings.Repeat("x", 60_000)), 400, "invalid-resource"},
		"holder of 257 bytes":   {fmt.Sprintf(`{"resource":"a","holder":%q}`, strings.Repeat("x", 257)), 400, "invalid"},
		"metadata of 5,000":     {`{"resource":"a","metadata":` + keys(1, 5000) + `}`, 400, "invalid"},
		"metadata with 33 keys": {`{"resource":"a","metadata":` + keys(33, 1) + `}`, 400, "invalid"},
		"set of 65":             {`{"resources":` + list(65) + `}`, 400, "invalid"},
		"set of 3,000":          {`{"resources":` + list(3000) + `}`, 400, "invalid"},
		"10,001 permits":        {`{"resource":"a","permits":10001}`, 400, "invalid"},
		"nonce of 2^32": {`{"resource":"a","sessionId":"` + strings.Repeat("0", 32) + `","nonce":4294967296}`, 400,
			"invalid"},
		"ttl of a year":          {`{"resource":"a","ttl":"8760h"}`, 400, "invalid"},
		"body of 64 KiB":         {`{"resource":"a"` + strings.Repeat(" ", 64<<10) + `}`, 413, "too-large"},
		"body of 64 MiB":         {`{"resource":"a"` + strings.Repeat(" ", 64*mib) + `}`, 413, "too-large"},
		"body of a million keys": {`{"resource":"a","metadata":` + keys(1_000_000, 1) + `}`, 413, "too-large"},
	}
	for name, r := range requests {
		var a answer
		// The server answers and closes the connection before it has read a large body. A client that is still writing
		// then may not see the answer.
		testserver.Eventually(t, "an answer to a "+name, func() (answered bool) {
			var err error
			a, err = s.send("", "/v1/acquire", r.body)
			if len(r.body) < mib {
				require.NoError(t, err, name)
			}
			return err == nil
		})
		require.Equal(t, r.status, a.status, "%s: %.300s", name, a.text)
		require.Equal(t, r.code, a.code, name)
		require.Less(t, len(a.text), 8<<10, "%s: the answer repeats the request", name)
	}
	s.oversizedHeaders()
	refused := s.oversizedMessages()
	served := others.end()
	require.Zero(t, s.count("holders"))
	require.Zero(t, s.count("sessions"))
	t.Logf("%d oversized requests: memory %s before, %s at most; %s", len(requests)+refused, size(before),
		size(s.memory("VmHWM")), served)
	require.Less(t, s.memory("VmHWM"), before+128*mib)
}

// oversizedHeaders sends headers, an address and a body without an end.
func (s *server) oversizedHeaders() {
	s.t.Helper()
	do := func(path, header string, body io.Reader) int {
		request, err := http.NewRequestWithContext(testContext(s.t), http.MethodPost, "http://"+s.api+path, body)
		require.NoError(s.t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-Large", header)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0 // the server has closed the connection
		}
		response.Body.Close()
		return response.StatusCode
	}
	large := strings.Repeat("x", 2*mib)
	require.Contains(s.t, []int{0, http.StatusRequestHeaderFieldsTooLarge}, do("/v1/acquire", large, nil))
	require.Contains(s.t, []int{0, http.StatusRequestHeaderFieldsTooLarge, http.StatusRequestURITooLong},
		do("/"+large, "", nil))
	require.Contains(s.t, []int{0, http.StatusRequestEntityTooLarge}, do("/v1/acquire", "", endless{}))
}

// endless is a body without an end.
type endless struct{}

// Read returns spaces.
func (endless) Read(b []byte) (int, error) {
	copy(b, bytes.Repeat([]byte(" "), len(b)))
	return len(b), nil
}

// oversizedMessages sends gRPC messages and headers, and returns their number.
func (s *server) oversizedMessages() int {
	s.t.Helper()
	client := pb.NewLeaseServiceClient(s.dial(""))
	ctx := testContext(s.t)
	for _, n := range []int{70 << 10, 5 * mib, 64 * mib} {
		_, err := client.Acquire(ctx, &pb.AcquireRequest{Resource: "a", Holder: strings.Repeat("x", n)})
		require.Equal(s.t, codes.ResourceExhausted, status.Code(err), "a message of %d bytes: %v", n, err)
	}
	_, err := client.Acquire(metadata.AppendToOutgoingContext(ctx, "x-large", strings.Repeat("x", 2*mib)),
		&pb.AcquireRequest{Resource: "a"})
	require.Error(s.t, err)
	many := context.WithoutCancel(ctx)
	for range 1000 {
		many = metadata.AppendToOutgoingContext(many, "x-large", strings.Repeat("x", 100))
	}
	_, err = client.Acquire(many, &pb.AcquireRequest{Resource: "a"})
	require.Error(s.t, err)
	return 5
}

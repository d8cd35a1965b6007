package objectgate_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// The tests run against versitygw, an S3 server that keeps objects as files and
// checks conditions under a lock for each object. It is built from source, at the
// version in testdata/versitygw/go.mod.
var store = testserver.Shared{Start: func() (*testserver.Server, error) {
	return testserver.StartVersityGW(filepath.Join("testdata", "versitygw"))
}}

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.checks", "30") // a check makes many requests; the command line can override it
	code := m.Run()
	store.Stop()
	os.Exit(code)
}

// buckets numbers the buckets of all tests.
var buckets atomic.Int64

// bucket creates an empty bucket.
func bucket(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", buckets.Add(1))
	_, err := client(t, nil).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name})
	require.NoError(t, err)
	return name
}

// client returns an S3 client. If wire is not nil, it carries the requests.
func client(t testing.TB, wire *faultyWire) *s3.Client {
	t.Helper()
	url := "http://" + store.Get(t).Addr
	options := s3.Options{BaseEndpoint: &url, Region: "us-east-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(testserver.S3User, testserver.S3Password, "")}
	if wire != nil {
		options.HTTPClient = &http.Client{Transport: wire}
	} else {
		options.HTTPClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	}
	return s3.New(options)
}

// faultyWire is the network between the gate and the store. Its hooks decide what
// happens to a request.
type faultyWire struct {
	mu    sync.Mutex
	puts  int
	onPut func(n int, r *http.Request, forward func() (*http.Response, error)) (*http.Response, error)
	// onHead, if set, can change every response to HEAD.
	onHead func(response *http.Response)
	// denyGet answers every GET with 403.
	denyGet bool
	down    bool
}

// RoundTrip forwards a request, unless a hook prevents it.
func (w *faultyWire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	down, onPut, onHead, denyGet := w.down, w.onPut, w.onHead, w.denyGet
	n := w.puts
	if r.Method == http.MethodPut {
		w.puts++
	}
	w.mu.Unlock()
	forward := func() (*http.Response, error) { return http.DefaultTransport.RoundTrip(r) }
	switch {
	case down:
		return nil, errLine
	case r.Method == http.MethodPut && onPut != nil:
		return onPut(n, r, forward)
	case r.Method == http.MethodHead && onHead != nil:
		response, err := forward()
		if err == nil {
			onHead(response)
		}
		return response, err
	case r.Method == http.MethodGet && denyGet:
		return &http.Response{StatusCode: http.StatusForbidden, Status: "403 Forbidden", Header: http.Header{}, Request: r,
			Body: io.NopCloser(strings.NewReader("<Error><Code>AccessDenied</Code></Error>"))}, nil
	}
	return forward()
}

func (w *faultyWire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
}

var errLine = errors.New("the connection is broken")

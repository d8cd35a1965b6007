package objectgate_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// The tests run against versitygw, a real S3 server that keeps objects as files
// and checks conditions under a lock for each object. It is built from source,
// at the version that testdata/versitygw/go.mod names.
var store = testserver.Shared{Start: func() (*testserver.Server, error) {
	return testserver.StartVersityGW(filepath.Join("testdata", "versitygw"))
}}

func TestMain(m *testing.M) {
	code := m.Run()
	store.Stop()
	os.Exit(code)
}

// buckets numbers the buckets of all tests.
var buckets atomic.Int64

// bucket makes an empty one.
func bucket(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", buckets.Add(1))
	_, err := client(t, nil).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name})
	require.NoError(t, err)
	return name
}

// client is an S3 client whose requests pass through wire, if that is not nil.
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

// faultyWire is the network between the gate and the store. The test decides
// what becomes of a write.
type faultyWire struct {
	mu    sync.Mutex
	puts  int
	onPut func(n int, r *http.Request, forward func() (*http.Response, error)) (*http.Response, error)
	// onHead, if set, sees every answer to HEAD, and may change it.
	onHead func(answer *http.Response)
	down   bool
}

// RoundTrip carries a request, or does not.
func (w *faultyWire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	down, onPut, onHead := w.down, w.onPut, w.onHead
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
		answer, err := forward()
		if err == nil {
			onHead(answer)
		}
		return answer, err
	}
	return forward()
}

func (w *faultyWire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
}

var errLine = errors.New("the line is dead")

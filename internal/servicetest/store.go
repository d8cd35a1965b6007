// Package servicetest is the service that the tests of httpgate, its proxy,
// grpcgate and connectgate put behind a gate. It is for tests only.
package servicetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leased-project/leased/fencing"
)

// Store keeps one value for each resource. It does not know tokens. The zero
// value is ready to use.
type Store struct {
	// Before, if not nil, runs before each write.
	Before func(value string)

	mu     sync.Mutex
	values map[fencing.Resource]string
}

// Put writes the value of a resource.
func (s *Store) Put(resource fencing.Resource, value string) {
	if s.Before != nil {
		s.Before(value)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[fencing.Resource]string{}
	}
	s.values[resource] = value
}

// Get returns the value of a resource.
func (s *Store) Get(resource fencing.Resource) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[resource]
}

// Message is the request of an RPC: a resource, which need not be valid, and a
// value.
func Message(resource fencing.Resource, value string) *wrapperspb.BytesValue {
	return wrapperspb.Bytes(fmt.Appendf(nil, "%d:%s%s", len(resource), resource, value))
}

// Unpack returns the content of a Message.
func Unpack(message any) (resource fencing.Resource, value string) {
	length, rest, _ := strings.Cut(string(message.(*wrapperspb.BytesValue).Value), ":")
	var n int
	fmt.Sscan(length, &n)
	return fencing.Resource(rest[:n]), rest[n:]
}

// overtakeTime is how long an old write gives a newer one the chance to overtake
// it. No result depends on it. A longer time only makes it more likely that a
// gate that does not serialize calls fails the test.
const overtakeTime = 100 * time.Millisecond

// RequireNewerWaits requires that the write of "new" waits until the write of
// "old", which has begun earlier, is complete. Both write to the resource "r".
func RequireNewerWaits(t *testing.T, store *Store, old, newer func() error) {
	t.Helper()
	inside, overtaken := make(chan struct{}), make(chan struct{})
	store.Before = func(value string) {
		if value == "new" {
			close(overtaken)
			return
		}
		close(inside)
		select {
		case <-overtaken:
		case <-time.After(overtakeTime):
		}
	}
	oldDone := make(chan error, 1)
	go func() { oldDone <- old() }()
	<-inside
	require.NoError(t, newer())
	require.NoError(t, <-oldDone)
	require.Equal(t, "new", store.Get("r"), "the older write was applied after the newer one")
}

package lease_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/leasetest"
	"github.com/leased-project/leased/raftstore/memory"
)

const signatureTTL = time.Hour

// signing is a backend whose service signs tokens.
type signing struct {
	engine.Backend
	asked int
	err   error
}

func (s *signing) Sign(_ context.Context, resource fencing.Resource, token fencing.Token) (engine.SignedToken, error) {
	s.asked++
	return engine.SignedToken{Text: fmt.Sprintf("%s:%d:%d", resource, token, s.asked), TTL: signatureTTL}, s.err
}

// newSigning returns a client on a signing backend, inside a synctest bubble.
func newSigning(t *testing.T) (*signing, *lease.Client) {
	t.Helper()
	backend, err := memory.New()
	require.NoError(t, err)
	s := &signing{Backend: backend}
	c, err := lease.New(s, lease.WithClock(leasetest.NewClock()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return s, c
}

func TestSignedTokenIsCachedForHalfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newSigning(t)
		l, err := c.Acquire(t.Context(), "a", lease.WithSet("b"))
		require.NoError(t, err)
		require.Zero(t, s.asked, "an acquire signs nothing")
		want := func(resource fencing.Resource, text string) {
			t.Helper()
			got, err := l.SignedTokenFor(t.Context(), resource)
			require.NoError(t, err)
			require.Equal(t, text, got)
		}
		first := fmt.Sprintf("a:%d:1", l.Token())
		want("a", first)
		want("b", fmt.Sprintf("b:%d:2", l.Token()))
		time.Sleep(signatureTTL/2 - time.Second)
		want("a", first)
		time.Sleep(time.Second)
		want("a", fmt.Sprintf("a:%d:3", l.Token()))
		got, err := l.SignedToken(t.Context())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("a:%d:3", l.Token()), got)
		require.NoError(t, l.Release(t.Context()))
		_, err = l.SignedToken(t.Context())
		require.ErrorIs(t, err, lease.ErrReleased)
	})
}

// While the service does not answer, or refuses calls above the rate of the user, the old signature is used until it
// expires, and not every write waits for the service.
func TestSignedTokenDuringAnOutage(t *testing.T) {
	for _, outage := range []error{engine.ErrUnavailable, engine.ErrLimit} {
		synctest.Test(t, func(t *testing.T) {
			s, c := newSigning(t)
			l, err := c.Acquire(t.Context(), "a")
			require.NoError(t, err)
			first, err := l.SignedToken(t.Context())
			require.NoError(t, err)
			s.err = outage
			time.Sleep(signatureTTL / 2)
			for range 3 {
				got, err := l.SignedToken(t.Context())
				require.NoError(t, err)
				require.Equal(t, first, got)
			}
			before := s.asked
			_, err = l.SignedToken(t.Context())
			require.NoError(t, err)
			require.Equal(t, before, s.asked, "the service is not asked for each write")
			time.Sleep(signatureTTL / 2)
			_, err = l.SignedToken(t.Context())
			require.ErrorIs(t, err, outage)
		})
	}
}

func TestSignedTokenOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newSigning(t)
		l, err := c.Acquire(t.Context(), "a")
		require.NoError(t, err)
		_, err = l.SignedToken(t.Context())
		require.NoError(t, err)
		s.err = engine.ErrNotHeld
		time.Sleep(signatureTTL / 2)
		_, err = l.SignedToken(t.Context())
		require.ErrorIs(t, err, lease.ErrLost, "the old signature is not used")
	})
}

func TestSignedTokenNeedsAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		l := s.acquire()
		_, err := l.SignedToken(t.Context())
		require.ErrorIs(t, err, lease.ErrUnsupported)
	})
}

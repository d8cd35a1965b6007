package redlockadapter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// What a second process has taken over and released stays free, though the first
// one, which has not heard of it, renews what it was granted.
func TestTheFormerProcessTakesNothingBack(t *testing.T) {
	f := longFleet(t)
	lost := make(chan error, 1)
	_, one, two, _, _ := handOver(t, f, func(_ lease.Nonce, err error) { lost <- err })
	f.awaitAll(t, "a", " ")
	_, err := two.(adopter).Adopt(patient(t), request(1, "a"), fencing.None)
	require.NoError(t, err)
	require.NoError(t, two.Release(patient(t), 1))
	for i := range f.servers {
		f.awaitFree(t, i, "a")
	}
	_, err = one.Renew(patient(t))
	require.NoError(t, err)
	require.Len(t, lost, 1, "the former process is told")
	require.ErrorIs(t, <-lost, lease.ErrTaken)
	_, err = open(t, f.backend(t), longTTL).Acquire(patient(t), request(9, "a"))
	require.NoError(t, err, "nobody holds it")
}

// A session that comes back to its first process has what it had, however it asks,
// and nobody is told of a loss. The process that served it meanwhile has no part in
// it any more.
func TestASessionComesBack(t *testing.T) {
	for name, ask := range map[string]func(lease.Session, fencing.Token) (lease.Grant, error){
		"adopt": func(s lease.Session, token fencing.Token) (lease.Grant, error) {
			return s.(adopter).Adopt(patient(t), request(1, "a"), token)
		},
		"acquire": func(s lease.Session, _ fencing.Token) (lease.Grant, error) {
			return s.Acquire(patient(t), request(1, "a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := longFleet(t)
			_, one, two, grant, held := handOver(t, f, func(_ lease.Nonce, err error) { t.Error("lost:", err) })
			f.awaitAll(t, "a", " ")
			for _, s := range []lease.Session{two, one, two, one} {
				found, err := s.(adopter).Adopt(patient(t), request(1, "a"), fencing.None)
				require.NoError(t, err)
				require.Equal(t, grant.Token, found.Token)
				held()
			}
			_, err := two.(adopter).Adopt(patient(t), request(1, "a"), grant.Token)
			require.NoError(t, err)
			found, err := ask(one, grant.Token)
			require.NoError(t, err)
			require.Equal(t, grant.Token, found.Token)
			found, err = ask(one, grant.Token)
			require.NoError(t, err, "asked once more")
			require.Equal(t, grant.Token, found.Token)
			require.NoError(t, two.Release(patient(t), 1))
			held()
			failed, err := one.Renew(patient(t))
			require.NoError(t, err)
			require.Empty(t, failed)
			require.NoError(t, one.Release(patient(t), 1))
			_, err = open(t, f.backend(t), longTTL).Acquire(patient(t), request(9, "a"))
			require.NoError(t, err, "nobody holds it")
		})
	}
}

// A session that comes back to its first process, and has lost its lease
// meanwhile, is told so.
func TestASessionComesBackTooLate(t *testing.T) {
	f := longFleet(t)
	lost := make(chan error, 1)
	_, one, two, grant, _ := handOver(t, f, func(_ lease.Nonce, err error) { lost <- err })
	_, err := two.(adopter).Adopt(patient(t), request(1, "a"), fencing.None)
	require.NoError(t, err)
	require.NoError(t, two.Release(patient(t), 1))
	_, err = one.(adopter).Adopt(patient(t), request(1, "a"), grant.Token)
	require.ErrorIs(t, err, lease.ErrHeld)
	require.Len(t, lost, 1)
	require.ErrorIs(t, <-lost, lease.ErrTaken)
	failed, err := one.Renew(patient(t))
	require.NoError(t, err)
	require.Empty(t, failed, "it has nothing left")
}

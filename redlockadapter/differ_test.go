package redlockadapter_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// differ has the nodes disagree on the counter of a lock that is held, as after one
// of them has rejoined: the first one's is the token, the others' are ahead.
func (f *fleet) differ(t *testing.T, resource string) {
	t.Helper()
	f.awaitAll(t, resource, " ")
	for i := range f.servers {
		_, rest, _ := strings.Cut(f.lockOn(t, i, resource), " ")
		c := redis.NewClient(&redis.Options{Addr: f.servers[i].Addr})
		defer c.Close()
		require.NoError(t, c.HSet(patient(t), hashOf(t, c), ":"+resource, []string{"1 ", "66 ", "67 "}[i]+rest).Err())
	}
}

// A lease is seen, and can be broken, by the process that was granted it, also if
// the nodes have different counters. Others cannot tell its token, nor whether it
// was granted: they neither name one nor say that the attempt has come to nothing.
func TestALeaseOnNodesThatDiffer(t *testing.T) {
	f := longFleet(t)
	first, one, two, grant, held := handOver(t, f, nil)
	require.Equal(t, fencing.Token(1), grant.Token)
	f.differ(t, "a")
	failed, err := one.Renew(patient(t))
	require.NoError(t, err)
	require.Empty(t, failed)

	status, err := first.Inspect(patient(t), "a")
	require.NoError(t, err)
	require.Len(t, status.Holders, 1)
	require.Equal(t, grant.Token, status.Holders[0].Token)
	status, err = f.backend(t).Inspect(patient(t), "a")
	require.NoError(t, err)
	require.Empty(t, status.Holders)
	_, err = two.(adopter).Adopt(patient(t), request(1, "a"), grant.Token)
	require.ErrorIs(t, err, lease.ErrUncertain)
	_, err = two.(adopter).Adopt(patient(t), request(2, "a"), fencing.None)
	require.ErrorIs(t, err, lease.ErrNotHeld, "another attempt")
	held()
	require.ErrorIs(t, first.Break(patient(t), "a", 66), lease.ErrNotHeld)
	held()
	require.NoError(t, first.Break(patient(t), "a", grant.Token))
	_, err = open(t, f.backend(t), longTTL).Acquire(patient(t), request(9, "a"))
	require.NoError(t, err)
}

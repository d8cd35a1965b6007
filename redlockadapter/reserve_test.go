package redlockadapter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// A node that is lost twice starts from another floor the second time, although
// no other node has accepted a token in between.
func TestANodeThatIsLostTwiceGetsTwoFloors(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3).shortLives().init(t)
	b := f.backend(t)
	floor := func() (floor fencing.Token) {
		waitFor(t, func() bool {
			live := b.NodeStatuses(patient(t))[0].Report.Live
			if live != nil {
				floor = live.Floor
			}
			return live != nil
		}, "the node votes again")
		return floor
	}
	var floors []fencing.Token
	for range 2 {
		require.NoError(t, f.client(t, 0).FlushAll(patient(t)).Err())
		floors = append(floors, floor())
	}
	require.Greater(t, floors[1], floors[0])
}

// A server that was restarted twice, without a snapshot of its own in between,
// does not hand out the same range twice: the recovery itself writes one.
func TestTwoRestartsFromOneSnapshot(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1).shortLives().init(t)
	b, k := f.backend(t), newTaker(t)
	k.takeSome(b, 5)
	require.NoError(t, f.client(t, 0).Save(patient(t)).Err())
	for range 2 {
		f.servers[0].Kill()
		require.NoError(t, f.servers[0].Start())
		k.takeSome(b, 50)
	}
}

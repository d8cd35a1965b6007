package redlock

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/redlockadapter/quorum"
)

// TestAnEpochOfAFewIsNotUsed goes one way through a world of five nodes that is
// too large to be searched. Its third join moves one node to epoch 3 and stops.
// If an attempt carried that epoch, a node that votes for it and is emptied could
// come back in epoch 3 too, through a majority that has not heard of it, and the
// forgotten vote would count. With three nodes this cannot happen: who brings
// one back must have heard both others.
func TestAnEpochOfAFewIsNotUsed(t *testing.T) {
	w := NewWorld(5, 2)
	all, without0 := []bool{true, true, true, true, true}, []bool{false, true, true, true, true}
	prepare := func(join int, nodes ...int) {
		for _, n := range nodes {
			w.answerPrepare(join, n)
			require.True(t, w.Columns[n].Prepares[join].OK)
		}
	}
	require.True(t, w.lose(4, (*Column).lose))
	require.True(t, w.beginJoin(0, 4, all))
	require.EqualValues(t, 2, w.Joins[0].Epoch)
	prepare(0, 3)
	require.True(t, w.beginJoin(1, 4, all), "someone else takes over")
	require.EqualValues(t, 3, w.Joins[1].Epoch, "it has heard of epoch 2")
	require.True(t, w.beginJoin(2, 4, []bool{true, true, true, false, true}), "and someone who has not")
	require.EqualValues(t, 2, w.Joins[2].Epoch)
	prepare(2, 1, 2, 3)
	for _, n := range []int{1, 2, 3} {
		w.hearPrepare(2, n)
	}
	w.arriveInit(2)
	require.True(t, w.Columns[4].Data, "node 4 is back in epoch 2")
	prepare(1, 0)
	require.EqualValues(t, 3, w.Columns[0].Epoch, "a late message moves one node to epoch 3")

	usable, largest := quorum.EpochOf(w.reports())
	require.EqualValues(t, 3, largest)
	w.start(0, uint8(usable)) // in epoch 3, if it were usable
	w.answerAcquire(0, 0)
	w.answerAcquire(0, 1)
	_ = w.hearAcquire(0, 0)
	_ = w.hearAcquire(0, 1)
	require.True(t, w.lose(1, (*Column).lose), "node 1 forgets that it voted")

	w.Joins[0] = Joining{} // its messages are over
	for i := range w.columns() {
		w.Columns[i].Prepares[0] = Prepare{}
	}
	require.True(t, w.beginJoin(0, 1, without0))
	require.EqualValues(t, 3, w.Joins[0].Epoch)
	prepare(0, 2, 3, 4)
	for _, n := range []int{2, 3, 4} {
		w.hearPrepare(0, n)
	}
	w.arriveInit(0)
	require.True(t, w.Columns[1].Data)
	w.answerAcquire(0, 2)
	require.NoError(t, w.hearAcquire(0, 2))

	usable, _ = quorum.EpochOf(w.reports())
	require.EqualValues(t, 3, usable, "now a majority is in epoch 3")
	w.start(1, 3)
	for _, n := range []int{1, 3, 4} {
		w.answerAcquire(1, n)
	}
	for _, n := range []int{1, 3, 4} {
		require.NoError(t, w.hearAcquire(1, n))
	}
	require.Equal(t, quorum.Granted, w.Attempts[1].Outcome)
}

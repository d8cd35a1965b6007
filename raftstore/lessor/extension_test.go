package lessor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/raftstore/machine"
)

// A renewal for another TTL never takes back time that an earlier one gave: it may be a late
// copy.
func TestShorterRenewalTakesNothingBack(t *testing.T) {
	l := begin()
	open(l, 0, a, 10*time.Second, 1)
	l.Applied(at(0), &machine.Update{Session: a, Incarnation: 1, TTL: time.Minute}, machine.Result{Code: machine.Done},
		nil)
	require.True(t, l.Renew(at(time.Second), a, 1, time.Minute))
	require.True(t, l.Renew(at(2*time.Second), a, 1, 10*time.Second))
	require.Equal(t, time.Minute, l.Left(at(time.Second), a))
	commands, _ := l.Due(at(60 * time.Second))
	require.Empty(t, commands)
	require.True(t, l.Renew(at(60*time.Second), a, 1, 0), "a plain renewal gives the longest TTL")
	require.Equal(t, time.Minute, l.Left(at(60*time.Second), a))
}

// A TTL that was refused, or belongs to another incarnation, changes nothing.
func TestRefusedUpdateChangesNoTTL(t *testing.T) {
	l := begin()
	open(l, 0, a, 10*time.Second, 2)
	l.Applied(at(0), &machine.Update{Session: a, Incarnation: 2, TTL: time.Minute}, machine.Result{Code: machine.NotHeld},
		nil)
	l.Applied(at(0), &machine.Update{Session: a, Incarnation: 1, TTL: time.Minute}, machine.Result{Code: machine.Done},
		nil)
	require.True(t, l.Renew(at(time.Second), a, 2, 0))
	require.Equal(t, 10*time.Second, l.Left(at(time.Second), a))
}

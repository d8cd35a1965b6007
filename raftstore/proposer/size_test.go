package proposer_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/proposer"
)

// Everything of a request that a caller can make long counts for the size of an entry: names,
// holder and metadata. Otherwise an entry could exceed what the log and the peers accept.
func TestSizeOfAnEntryCountsWholeRequests(t *testing.T) {
	long := strings.Repeat("x", 1<<10)
	acquire := func(r engine.Request) machine.Command { return &machine.Acquire{Request: r} }
	one := []fencing.Resource{"a"}
	for name, c := range map[string]machine.Command{
		"names": acquire(engine.Request{Nonce: 1, Resources: []fencing.Resource{fencing.Resource("a" + long[1:]),
			fencing.Resource("b" + long[1:])}}),
		"holder": acquire(engine.Request{Nonce: 1, Resources: one, Holder: long}),
		"values": acquire(engine.Request{Nonce: 1, Resources: one, Metadata: map[string]string{"k": long, "l": long}}),
		"metadata": acquire(engine.Request{Nonce: 1, Resources: one, Metadata: map[string]string{long: "",
			"y" + long[1:]: ""}}),
		"update":    &machine.Update{Nonce: 1, Metadata: map[string]string{"k": long}},
		"break":     &machine.Break{Resource: fencing.Resource(long), Token: 1},
		"end delay": &machine.EndDelay{Resource: fencing.Resource(long), Delay: 1},
	} {
		t.Run(name, func(t *testing.T) {
			size := len(machine.Encode(c))
			require.InDelta(t, size, proposer.Size(c), 100)
			q := proposer.NewQueue[int](proposer.MaxOperations)
			for i := range proposer.MaxOperations {
				require.True(t, q.Add(proposer.Operation[int]{Command: c, Caller: i}))
			}
			batch, _ := q.Next(0)
			require.Less(t, len(machine.Encode(batch.Commands...)), proposer.MaxBytes+2*size)
			require.Positive(t, q.Len())
		})
	}
}

// An entry in which sessions end has one EndRequests, after everything else, however many
// sessions end. One that the leader proposes moves to the end.
func TestEntryEndsBoundedRequests(t *testing.T) {
	next := func(commands ...machine.Command) []machine.Command {
		q := proposer.NewQueue[int](100)
		for i, c := range commands {
			require.True(t, q.Add(proposer.Operation[int]{Command: c, Caller: i}))
		}
		batch, _ := q.Next(0)
		results := make([]machine.Result, len(batch.Commands))
		for i, c := range batch.Commands {
			results[i].Version = uint64(1 + index(commands, c))
		}
		answered := 0
		batch.Answer(results, func(caller int, result machine.Result) {
			if commands[caller] != nil {
				require.EqualValues(t, 1+caller, result.Version, "each caller gets its own result")
			}
			answered++
		})
		require.Equal(t, len(commands), answered)
		return batch.Commands
	}
	end := &machine.EndRequests{Max: machine.MaxEndRequests}
	closing, expiring, acquire, own := &machine.CloseSession{}, &machine.Expire{}, &machine.Acquire{},
		&machine.EndRequests{Max: 3}
	require.Equal(t, []machine.Command{acquire}, next(acquire))
	require.Equal(t, []machine.Command{closing, acquire, end}, next(closing, acquire))
	require.Equal(t, []machine.Command{expiring, expiring, closing, end}, next(expiring, &machine.Expire{}, nil, closing))
	require.Equal(t, []machine.Command{acquire, closing, own}, next(own, acquire, nil, closing))
}

func index(commands []machine.Command, c machine.Command) int {
	for i := range commands {
		if commands[i] == c {
			return i
		}
	}
	return -1
}

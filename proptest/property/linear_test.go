package property_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// The answers to an operation; one without an answer has unknown.
const (
	unknown property.Kind = 0
	done                  = property.Acknowledged
	stale                 = property.Rejected
)

// op is an operation on the only register of these histories.
func op(client int, call, end time.Duration, access property.Access, token fencing.Token, value uint64,
	answer property.Kind) property.Op {
	return property.Op{Client: client, Resource: "r", Access: access, Token: token, Value: value, Answer: answer,
		Call: call, Return: end}
}

func TestCheck(t *testing.T) {
	const enter, write, read = property.Enter, property.Write, property.Read
	for name, c := range map[string]struct {
		history []property.Op
		want    error
	}{
		"one after the other": {[]property.Op{op(1, 0, 1, enter, 1, 0, done), op(1, 2, 3, write, 1, 7, done),
			op(2, 4, 5, enter, 2, 0, done), op(2, 6, 7, read, 0, 7, done), op(1, 8, 9, write, 1, 8, stale)},
			nil},
		"a stale write that was applied": {[]property.Op{op(2, 0, 1, enter, 2, 0, done),
			op(1, 2, 3, write, 1, 8, done)}, property.ErrNotLinearizable},
		"a good write that was refused": {[]property.Op{op(1, 0, 1, enter, 1, 0, done),
			op(1, 2, 3, write, 1, 8, stale)}, property.ErrNotLinearizable},
		"a stale read": {[]property.Op{op(1, 0, 1, write, 1, 7, done), op(1, 2, 3, write, 1, 8, done),
			op(2, 4, 5, read, 0, 7, done)}, property.ErrNotLinearizable},
		"an unknown write that was applied late": {[]property.Op{op(1, 0, 1, write, 1, 7, unknown),
			op(2, 2, 3, read, 0, 0, done),
			op(2, 4, 5, read, 0, 7, done)}, nil},
		"an unknown write that was never applied": {[]property.Op{op(1, 0, 1, write, 1, 7, unknown),
			op(2, 2, 3, read, 0, 0, done)}, nil},
		"an unknown write, after a newer token": {[]property.Op{op(1, 0, 1, write, 1, 7, unknown),
			op(2, 2, 3, enter, 2, 0, done), op(2, 4, 5, read, 0, 0, done), op(2, 6, 7, read, 0, 7, done)},
			property.ErrNotLinearizable},
		"a refused write that was applied": {[]property.Op{op(2, 0, 1, enter, 2, 0, done),
			op(1, 2, 3, write, 1, 8, stale), op(2, 4, 5, read, 0, 8, done)}, property.ErrNotLinearizable},
	} {
		t.Run(name, func(t *testing.T) {
			var page bytes.Buffer
			require.ErrorIs(t, property.CheckLinearizable(c.history, time.Minute, &page), c.want)
			require.Equal(t, c.want != nil, page.Len() > 0)
		})
	}
}

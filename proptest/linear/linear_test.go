package linear_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/linear"
	"github.com/leased-project/leased/proptest/property"
)

// op is an operation on the only register of these histories.
func op(client int, call, end time.Duration, access property.Access, token fencing.Token, value uint64,
	outcome linear.Outcome) linear.Op {
	return linear.Op{Client: client, Resource: "r", Access: access, Token: token, Value: value, Outcome: outcome,
		Call: call, Return: end}
}

func TestCheck(t *testing.T) {
	const enter, write, read = property.Enter, property.Write, property.Read
	for name, c := range map[string]struct {
		history []linear.Op
		want    error
	}{
		"one after the other": {[]linear.Op{op(1, 0, 1, enter, 1, 0, linear.Done), op(1, 2, 3, write, 1, 7, linear.Done),
			op(2, 4, 5, enter, 2, 0, linear.Done), op(2, 6, 7, read, 0, 7, linear.Done), op(1, 8, 9, write, 1, 8, linear.Stale)},
			nil},
		"a stale write that was applied": {[]linear.Op{op(2, 0, 1, enter, 2, 0, linear.Done),
			op(1, 2, 3, write, 1, 8, linear.Done)}, linear.ErrNotLinearizable},
		"a good write that was refused": {[]linear.Op{op(1, 0, 1, enter, 1, 0, linear.Done),
			op(1, 2, 3, write, 1, 8, linear.Stale)}, linear.ErrNotLinearizable},
		"a stale read": {[]linear.Op{op(1, 0, 1, write, 1, 7, linear.Done), op(1, 2, 3, write, 1, 8, linear.Done),
			op(2, 4, 5, read, 0, 7, linear.Done)}, linear.ErrNotLinearizable},
		"an unknown write that was applied late": {[]linear.Op{op(1, 0, 1, write, 1, 7, linear.Unknown),
			op(2, 2, 3, read, 0, 0, linear.Done),
			op(2, 4, 5, read, 0, 7, linear.Done)}, nil},
		"an unknown write that was never applied": {[]linear.Op{op(1, 0, 1, write, 1, 7, linear.Unknown),
			op(2, 2, 3, read, 0, 0, linear.Done)}, nil},
		"an unknown write, after a newer token": {[]linear.Op{op(1, 0, 1, write, 1, 7, linear.Unknown),
			op(2, 2, 3, enter, 2, 0, linear.Done), op(2, 4, 5, read, 0, 0, linear.Done), op(2, 6, 7, read, 0, 7, linear.Done)},
			linear.ErrNotLinearizable},
		"a refused write that was applied": {[]linear.Op{op(2, 0, 1, enter, 2, 0, linear.Done),
			op(1, 2, 3, write, 1, 8, linear.Stale), op(2, 4, 5, read, 0, 8, linear.Done)}, linear.ErrNotLinearizable},
	} {
		t.Run(name, func(t *testing.T) {
			var page bytes.Buffer
			require.ErrorIs(t, linear.Check(c.history, time.Minute, &page), c.want)
			require.Equal(t, c.want != nil, page.Len() > 0)
		})
	}
}

package quorum

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// decided runs an attempt on five nodes that all accept the same token.
func decided(tb testing.TB) {
	a := asked(5)
	for node := range 5 {
		if a.Answer(node, yes(7), false).Raise != 0 {
			tb.Fatal("no raise is needed")
		}
	}
	if a.Outcome != Granted {
		tb.Fatal("the attempt must be granted")
	}
}

// BenchmarkAttempt decides an attempt by the answers of five nodes.
func BenchmarkAttempt(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		decided(b)
	}
}

// BenchmarkDecide decides by the votes of five nodes that accepted different tokens.
func BenchmarkDecide(b *testing.B) {
	votes := []Vote{yes(7), yes(8), yes(9), {State: Held}, {State: Failed}}
	b.ReportAllocs()
	for b.Loop() {
		if Decide(votes, 0).Outcome != Differ {
			b.Fatal("the tokens differ")
		}
	}
}

func TestAllocations(t *testing.T) {
	votes := []Vote{yes(7), yes(8), yes(9), {State: Held}, {State: Failed}}
	require.Zero(t, testing.AllocsPerRun(200, func() { _ = Decide(votes, 0) }))
	require.LessOrEqual(t, testing.AllocsPerRun(200, func() { decided(t) }), 2.0, "an attempt and its votes")
}

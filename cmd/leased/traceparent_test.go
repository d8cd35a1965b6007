package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/leased-project/leased/lease/engine"
)

// Calls of a command belong to the trace that the environment names.
func TestTraceparentOfTheEnvironment(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ctx := withTraceparent(context.Background(), parent)
	require.Equal(t, parent, engine.TraceparentOf(ctx), "session streams")
	sent, _ := metadata.FromOutgoingContext(ctx)
	require.Equal(t, []string{parent}, sent.Get("traceparent"), "unary calls")
	for _, text := range []string{"", "nonsense", parent + "\n"} {
		require.Equal(t, context.Background(), withTraceparent(context.Background(), text), text)
	}
}

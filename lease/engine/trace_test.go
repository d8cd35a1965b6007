package engine_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// A context without a trace costs no allocation.
func TestTraceOf(t *testing.T) {
	ctx := context.Background()
	require.Nil(t, engine.TraceOf(ctx))
	require.Empty(t, engine.TraceparentOf(ctx))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = engine.TraceparentOf(ctx) }))
	trace := &engine.Trace{Parent: "00-1-2-01"}
	ctx, cancel := context.WithCancel(engine.WithTrace(ctx, trace))
	defer cancel()
	require.Same(t, trace, engine.TraceOf(ctx))
	require.Equal(t, "00-1-2-01", engine.TraceparentOf(ctx))
}

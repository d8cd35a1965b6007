package lease

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// A holder that has nothing must not be remembered: names come and go.
func TestHoldersAreForgotten(t *testing.T) {
	var s holders
	p := &plan{reentrant: true, request: engine.Request{Holder: "x", Resources: []fencing.Resource{"a"}}}
	e, err := s.turn(context.Background(), p)
	require.NoError(t, err)
	h := &hold{entry: e, request: p.request}
	s.remember(h)
	s.done(e)
	require.Len(t, s.entries, 1, "it holds something")
	s.forget(h)
	require.Empty(t, s.entries)

	e, err = s.turn(context.Background(), p)
	require.NoError(t, err)
	p.try = true
	_, err = s.turn(context.Background(), p)
	require.ErrorIs(t, err, engine.ErrHeld)
	s.done(e)
	require.Empty(t, s.entries)
}

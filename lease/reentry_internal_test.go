package lease

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// TestUnusedHolderRecordsAreDeleted checks that the registry does not grow with the
// number of holder names.
func TestUnusedHolderRecordsAreDeleted(t *testing.T) {
	var r holderRegistry
	s := &acquireSettings{reentrant: true, request: engine.Request{Holder: "x", Resources: []fencing.Resource{"a"}}}
	record, _, err := r.begin(t.Context(), t.Context(), s)
	require.NoError(t, err)
	g := &heldGrant{record: record}
	r.add(g)
	r.end(record)
	require.Len(t, r.records, 1, "the holder holds a grant")
	r.remove(g)
	require.Empty(t, r.records)

	record, _, err = r.begin(t.Context(), t.Context(), s)
	require.NoError(t, err)
	s.try = true
	_, _, err = r.begin(t.Context(), t.Context(), s)
	require.ErrorIs(t, err, engine.ErrHeld)
	r.end(record)
	require.Empty(t, r.records)
}

// A lease is re-entered while another call of its holder re-enters it, or has not returned it yet.
func TestReentryNeedsNoLock(t *testing.T) {
	b, c := newRouted(t)
	defer c.Close(t.Context())
	b.acquire = func(context.Context, engine.Mode, engine.Request) (engine.Grant, error) {
		return engine.Grant{Token: 1, Mode: engine.Efficiency, Sent: engine.MonotonicClock().Now(), Name: "n"}, nil
	}
	first, err := c.Acquire(t.Context(), "a", WithHolder("x"))
	require.NoError(t, err)
	first.grant.record.acquiring <- struct{}{} // the other call
	second, err := c.TryAcquire(t.Context(), "a", WithHolder("x"))
	<-first.grant.record.acquiring
	require.NoError(t, err)
	require.Same(t, first.grant, second.grant)
}

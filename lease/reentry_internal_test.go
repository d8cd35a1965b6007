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
	record, err := r.begin(context.Background(), s)
	require.NoError(t, err)
	g := &heldGrant{record: record}
	r.add(g)
	r.end(record)
	require.Len(t, r.records, 1, "the holder holds a grant")
	r.remove(g)
	require.Empty(t, r.records)

	record, err = r.begin(context.Background(), s)
	require.NoError(t, err)
	s.try = true
	_, err = r.begin(context.Background(), s)
	require.ErrorIs(t, err, engine.ErrHeld)
	r.end(record)
	require.Empty(t, r.records)
}

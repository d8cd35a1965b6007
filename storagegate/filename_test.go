package storagegate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

func TestFileName(t *testing.T) {
	for resource, want := range map[fencing.Resource]string{
		"orders-42.json": "orders-42.json",
		"a/b":            "a%2fb",
		"A":              "%41",
		"..":             "%2e.",
		".leased":        "%2eleased",
		"100%":           "100%25",
		fencing.Resource(strings.Repeat("x", 200)): strings.Repeat("x", 200),
	} {
		require.Equal(t, want, storagegate.FileName(resource))
	}
	long := storagegate.FileName(fencing.Resource(strings.Repeat("x", 201)))
	require.Len(t, long, 65)
	require.True(t, strings.HasPrefix(long, "~"), "no escaped name starts with ~")
}

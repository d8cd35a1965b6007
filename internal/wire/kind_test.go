package wire_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// TestKindsAreComplete checks that every row of the table fills every column and
// that KindOf finds it by its sentinel.
func TestKindsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for i, k := range wire.Kinds {
		require.NotEmpty(t, k.Code)
		require.False(t, seen[k.Code], "code %s has two rows", k.Code)
		seen[k.Code] = true
		require.Error(t, k.Sentinel, k.Code)
		require.NotEqual(t, codes.OK, k.GRPC, k.Code)
		require.GreaterOrEqual(t, k.HTTP, 400, k.Code)
		require.Positive(t, k.Exit, k.Code)
		require.NotEmpty(t, k.Hint, k.Code)
		if last := i == len(wire.Kinds)-1; !last {
			require.Equal(t, k, wire.KindOf(fmt.Errorf("acquire: %w", k.Sentinel)))
		}
	}
	require.Equal(t, wire.CodeInternal, wire.KindOf(errors.New("disk is full")).Code)
	require.Equal(t, wire.CodeNotLeader, wire.KindOf(&wire.NotLeaderError{}).Code)
	require.Equal(t, wire.CodeModeMismatch, wire.KindOf(&engine.ModeError{}).Code)
	require.Equal(t, wire.CodeUnavailable, wire.KindOf(&engine.MigratingError{}).Code)
}

// TestKindsAreDocumented checks the table of errors in docs/API.md: it names every
// code with its HTTP status and exit code, and no other code.
func TestKindsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/API.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Errors\n")
	require.True(t, found, "docs/API.md has a section Errors")
	documented := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`[^|]+`"+`) \| (\d+) \| (\d+) \|`).FindAllStringSubmatch(section,
		-1) {
		for code := range strings.SplitSeq(row[1], ", ") {
			documented[strings.Trim(code, "`")] = row[2] + " " + row[3]
		}
	}
	want := map[string]string{}
	for _, k := range wire.Kinds {
		want[k.Code] = fmt.Sprintf("%d %d", k.HTTP, k.Exit)
	}
	require.Equal(t, want, documented)
}

package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leased-project/leased/internal/golden"
	"github.com/leased-project/leased/lease/engine"
)

// TestGoldenErrors checks that no code of an error was removed or changed since version 1.
// The test with -update records new ones.
func TestGoldenErrors(t *testing.T) {
	lines := map[string]bool{}
	var text strings.Builder
	for _, k := range kinds {
		line := fmt.Sprintf("%s grpc %s http %d exit %d\n", k.Code, k.GRPC, k.HTTP, k.Exit)
		lines[line] = true
		text.WriteString(line)
	}
	if golden.Updating() {
		golden.Text(t, "errors.txt", text.String())
	}
	for line := range strings.Lines(string(golden.Read(t, "errors.txt"))) {
		require.True(t, lines[line], "the codes of errors are frozen: %s", line)
	}
}

// TestUnknownCall checks the answer of an older member to a call that it does not have:
// nothing has happened.
func TestUnknownCall(t *testing.T) {
	err := FromStatus(status.Error(codes.Unimplemented, "unknown method Overview for service leased.v1.LeaseService"))
	require.ErrorIs(t, err, engine.ErrUnsupported)
	require.NotErrorIs(t, err, engine.ErrUncertain)
	require.ErrorContains(t, err, "upgrade the member")
	require.ErrorIs(t, FromStatus(status.Error(codes.Unimplemented, "other")), engine.ErrUncertain)
}

package httpapi

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
)

// Numbers in a map are encoded as numbers, not as strings.
func TestEncodeMaps(t *testing.T) {
	build := &pb.Build{Formats: map[string]uint32{"log": 2}}
	require.JSONEq(t, `{"formats":{"log":2},"modified":false}`, string(Encode(build)))
}

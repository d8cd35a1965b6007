package redisgate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// FuzzReply checks that no result of a server is read as both a refusal and an
// admission, and that a mark in it is a token.
func FuzzReply(f *testing.F) {
	for _, kind := range []string{"stale", "jump", "changed", "failed", "raised", "done", "", "nonsense"} {
		f.Add(kind, "7", int64(0), uint8(3))
		f.Add(kind, "x", int64(1), uint8(1))
	}
	f.Fuzz(func(t *testing.T, kind, text string, number int64, length uint8) {
		list := []any{kind, text, number}
		if length&4 != 0 {
			list = []any{kind, number, text}
		}
		for _, result := range []any{nil, number, text, list[:length%4], []any{number, kind}} {
			r := parseReply(result)
			require.LessOrEqual(t, r.mark, fencing.MaxToken)
			if r.kind == "stale" || r.kind == "jump" {
				require.False(t, r.admitted, "%v", result)
			}
		}
	})
}

package redisgate

import (
	"testing"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/golden"
)

// TestGoldenMark checks that the key of a mark has its name of version 1. Its value is the
// token in decimal.
func TestGoldenMark(t *testing.T) {
	var text string
	for _, resource := range []fencing.Resource{"orders/42", "a{b}%c"} {
		text += MarkKey(resource) + "\n" + Key(resource, ":lines") + "\n"
	}
	golden.Text(t, "keys.txt", text)
}

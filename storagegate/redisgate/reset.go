package redisgate

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

var _ storagegate.Resetter = (*Gate)(nil)

// Reset implements storagegate.Resetter.
func (g *Gate) Reset(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	if err := storagegate.ValidateReset(resource, expected, to); err != nil {
		return err
	}
	if g.refused != nil {
		return g.refused
	}
	words := append(make([]any, reserved, reserved+3), MarkKey(resource), expected.String(), to.String())
	reply, err := resetScript.run(ctx, g.client, 1, words)
	if err != nil {
		return fmt.Errorf("reset the mark of %q: %w", string(resource), err)
	}
	switch v := parseReply(reply); {
	case v.failed != nil:
		return fmt.Errorf("reset the mark of %q: %w", string(resource), v.failed)
	case v.kind == "changed":
		return storagegate.CompareMark(resource, v.mark, expected)
	}
	return nil
}

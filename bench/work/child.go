package work

import (
	"context"
	"io"

	"github.com/leased-project/leased/bench/peers"
)

// Child is the main function of a process of a workload that needs several.
func Child(ctx context.Context, kinds []peers.Kind, settings string, in io.Reader, out io.Writer) error {
	return nil
}

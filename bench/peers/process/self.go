package process

import (
	"context"
	"io"
	"os"
	"os/exec"
)

// Self starts this program again with other arguments. It ends with ctx.
func Self(ctx context.Context, args ...string) (cmd *exec.Cmd, in io.WriteCloser, out io.ReadCloser, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd = exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, out, cmd.Start()
}

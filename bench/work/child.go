package work

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/internal/load"
)

// childSettings is what a child process does.
type childSettings struct {
	Kind           string
	Endpoints      []string
	Work           load.Work
	Prefix         string
	WarmUp, Length time.Duration
}

// Child is the main function of a child process. It connects to running servers, and writes a line when its clients are
// open, or when it holds all leases of a [load.Hold]. It goes on when its input ends, and writes what it measured.
func Child(ctx context.Context, kinds []peers.Kind, text string, in io.Reader, out io.Writer) error {
	var c childSettings
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return fmt.Errorf("read the settings of a child: %w", err)
	}
	i := slices.IndexFunc(kinds, func(k peers.Kind) bool { return k.Name == c.Kind })
	if i < 0 {
		return fmt.Errorf("there is no target %q", c.Kind)
	}
	ready := func() {
		fmt.Fprintln(out, "ready")
		_, _ = io.Copy(io.Discard, in) // ends too if the parent has died
	}
	target := kinds[i].Open(c.Endpoints)
	options := load.Options{Prefix: c.Prefix, WarmUp: c.WarmUp, Length: c.Length}
	if c.Work.Kind == load.Hold {
		options.End, options.Abandon, options.AtOnce = ready, true, takers
		_, err := load.Run(ctx, target, c.Work, options)
		return err
	}
	options.Ready = ready
	p, err := contend(ctx, target, c.Work, options, meter.New(func() []int { return nil }))
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(p)
}

// child is a running child process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// contendInProcesses runs the workers in child processes, which all start at once.
func (b *bench) contendInProcesses(ctx context.Context, t *target, work load.Work, processes int,
	m *meter.Meter) (parts []part, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the children if one fails
	defer cancel()
	options := b.options("W2")
	settings := childSettings{Work: work, Prefix: options.Prefix, WarmUp: options.WarmUp, Length: options.Length}
	var children []*child
	defer func() {
		if err != nil {
			cancel()
		}
		for _, c := range children {
			err = errors.Join(err, c.cmd.Wait())
		}
	}()
	for range processes {
		c, err := t.startChild(ctx, settings)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
	}
	for _, c := range children {
		if err := c.awaitReady(); err != nil {
			return nil, err
		}
	}
	for _, c := range children {
		_ = c.in.Close() // the end of its input starts the child
	}
	time.Sleep(options.WarmUp)
	m.Begin()
	time.Sleep(options.Length)
	m.End()
	for _, c := range children {
		var p part
		if err := json.NewDecoder(c.out).Decode(&p); err != nil {
			return nil, fmt.Errorf("read the figures of a process: %w", err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// startChild starts this program again as a child of the target, which ends with ctx.
func (t *target) startChild(ctx context.Context, settings childSettings) (*child, error) {
	settings.Kind, settings.Endpoints = t.kind.Name, t.cluster.Endpoints
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-child", string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &child{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

// awaitReady waits for the line that a child writes.
func (c *child) awaitReady() error {
	if _, err := c.out.ReadString('\n'); err != nil {
		return fmt.Errorf("wait until a process is ready: %w", err)
	}
	return nil
}

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
	Holds            bool // it holds leases, instead of competing for one
	Kind, Address    string
	Workers, Clients int
	Prefix           string
	WarmUp, Length   time.Duration
}

// Child is the main function of a child process. It connects to running servers, writes a
// line when it is ready, starts its workers when it reads one, and writes what it
// measured.
func Child(ctx context.Context, kinds []peers.Kind, text string, in io.Reader, out io.Writer) error {
	var c childSettings
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return fmt.Errorf("read the settings of a child: %w", err)
	}
	i := slices.IndexFunc(kinds, func(k peers.Kind) bool { return k.Name == c.Kind })
	if i < 0 {
		return fmt.Errorf("there is no target %q", c.Kind)
	}
	target, err := kinds[i].Attach(c.Address)
	if err != nil {
		return err
	}
	if c.Holds {
		return holdOrders(ctx, target, in, out)
	}
	options := load.Options{Prefix: c.Prefix, WarmUp: c.WarmUp, Length: c.Length, Ready: func() {
		fmt.Fprintln(out, "ready")
		_, _ = bufio.NewReader(in).ReadString('\n') // ends too if the parent has died
	}}
	noServers := func() []int { return nil }
	work := load.Work{Kind: load.Contended, Workers: c.Workers, Clients: c.Clients}
	p, err := contend(ctx, target, work, options, meter.New(noServers))
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
func (b *bench) contendInProcesses(ctx context.Context, t *target, workers, processes int,
	m *meter.Meter) (parts []part, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the children if one fails
	defer cancel()
	options := b.options("W2")
	settings := childSettings{
		Kind: t.kind.Name, Address: t.peer.Address(), Workers: workers, Clients: t.clients(workers),
		Prefix: options.Prefix, WarmUp: options.WarmUp, Length: options.Length,
	}
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
		c, err := startChild(ctx, settings)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
	}
	for _, c := range children {
		if _, err := c.out.ReadString('\n'); err != nil {
			return nil, fmt.Errorf("wait until a process is ready: %w", err)
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

// startChild starts this program again as a child, which ends with ctx.
func startChild(ctx context.Context, settings childSettings) (*child, error) {
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

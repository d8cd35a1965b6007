//go:build unix

package supervise

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

const (
	// guardPoll is the interval at which a guard reads the clock that includes
	// suspends. Timers do not include them.
	guardPoll = 100 * time.Millisecond
	// guardTimeout bounds one message to the guard, which may be stopped.
	guardTimeout = 100 * time.Millisecond
)

// guard is the supervisor's side of the guard process.
type guard struct {
	cmd   *exec.Cmd
	pipe  *os.File
	ready chan struct{} // closed when it knows the group and the deadline
	gone  chan struct{} // closed when it has exited
}

// startGuard starts the guard in its own session, so keys on the terminal do
// not reach it.
func startGuard(args []string) (*guard, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("%w: Command.Guard is empty", ErrGuard)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGuard, err)
	}
	defer r.Close()
	answer, theirs, err := os.Pipe()
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("%w: %w", ErrGuard, err)
	}
	defer theirs.Close()
	g := &guard{cmd: exec.Command(args[0], args[1:]...), pipe: w, ready: make(chan struct{}), gone: make(chan struct{})}
	g.cmd.Stdin, g.cmd.Stdout = r, theirs
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := g.cmd.Start(); err != nil {
		w.Close()
		answer.Close()
		return nil, fmt.Errorf("%w: %w", ErrGuard, err)
	}
	go func() {
		if n, _ := answer.Read(make([]byte, 1)); n > 0 {
			close(g.ready)
		}
	}()
	go func() { _ = g.cmd.Wait(); close(g.gone); answer.Close() }()
	return g, nil
}

// watch sends the group to the guard, which answers when it also has the deadline.
func (g *guard) watch(target group) { g.send("group %d\n", target) }

// until sends the times until SIGTERM and SIGKILL. A later message replaces them.
func (g *guard) until(term, kill time.Duration) {
	now := bootTime()
	g.send("until %d %d\n", now+term, now+kill)
}

// dismiss ends the guard and waits until it has exited.
func (g *guard) dismiss() {
	g.send("done 0\n")
	_ = g.pipe.Close()
	select {
	case <-g.gone:
	case <-time.After(guardTimeout):
		_ = g.cmd.Process.Kill() // it is stopped, or the machine is busy
		<-g.gone
	}
}

func (g *guard) send(format string, args ...any) {
	_ = g.pipe.SetWriteDeadline(time.Now().Add(guardTimeout))
	if _, err := fmt.Fprintf(g.pipe, format, args...); err != nil {
		// The guard acts on the old deadline, which is safe.
		_ = g.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// Guard is the main function of the guard process. It reads the group and the
// deadline from in and writes one byte to out when it has both. It kills the group at
// the deadline, or when in ends without a "done" message: then the supervisor has
// died. It returns when nothing is left to guard.
func Guard(in io.Reader, out io.Writer) {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	w := guardState{}
	answered := false
	messages := make(chan message)
	go read(in, messages)
	tick := time.NewTicker(guardPoll)
	defer tick.Stop()
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				w.target.signal(syscall.SIGKILL)
				return
			}
			if !w.handle(m) {
				return
			}
			if w.ready() && !answered {
				answered = true
				_, _ = out.Write([]byte{1}) // without it the supervisor does not start the command
			}
		case <-tick.C:
		}
		if wait := w.act(bootTime()); wait < guardPoll {
			tick.Reset(max(wait, time.Millisecond))
		} else {
			tick.Reset(guardPoll)
		}
	}
}

// message is one line: a name and up to two numbers.
type message struct {
	name string
	a, b int64
}

func read(in io.Reader, messages chan<- message) {
	defer close(messages)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var m message
		if n, _ := fmt.Sscan(lines.Text(), &m.name, &m.a, &m.b); n >= 2 {
			messages <- m
		}
	}
}

// guardState is the state of a guard: the command's process group and its deadlines.
type guardState struct {
	target     group
	term, kill time.Duration // by bootTime; 0 if not received yet
	signaled   bool          // SIGTERM was sent
}

// ready reports whether the guard can act alone.
func (w *guardState) ready() bool { return w.target != 0 && w.kill != 0 }

// handle processes a message and reports whether to continue.
func (w *guardState) handle(m message) bool {
	switch m.name {
	case "group":
		w.target = group(m.a)
	case "until":
		w.term, w.kill = time.Duration(m.a), time.Duration(m.b)
	case "done":
		return false
	}
	return true
}

// act sends the signals that are due and returns the time until the next. The guard
// sends SIGTERM a little later than the supervisor.
func (w *guardState) act(now time.Duration) time.Duration {
	if !w.ready() {
		return guardPoll
	}
	term := w.term + (w.kill-w.term)/4
	switch {
	case now >= w.kill:
		w.target.signal(syscall.SIGKILL)
		return guardPoll
	case now >= term:
		if !w.signaled && w.term < w.kill {
			w.signaled = true
			w.target.signal(syscall.SIGTERM)
		}
		return w.kill - now
	}
	return term - now
}

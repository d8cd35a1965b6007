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
	// guardPoll is how often a guard looks at the clock that also runs while
	// the machine is suspended. Timers do not see that time.
	guardPoll = 100 * time.Millisecond
	// guardPatience bounds one message to the guard: it may have been stopped.
	guardPatience = 100 * time.Millisecond
)

// guard is the supervisor's side of the guard process.
type guard struct {
	cmd   *exec.Cmd
	pipe  *os.File
	knows chan struct{} // closed when it knows what to end, and when
	gone  chan struct{} // closed when it has ended
}

// startGuard starts the guard, in a session of its own so that no key on the
// terminal reaches it.
func startGuard(args []string) (*guard, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("%w: no way to start one was given", ErrGuard)
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
	g := &guard{cmd: exec.Command(args[0], args[1:]...), pipe: w, knows: make(chan struct{}), gone: make(chan struct{})}
	g.cmd.Stdin, g.cmd.Stdout = r, theirs
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := g.cmd.Start(); err != nil {
		w.Close()
		answer.Close()
		return nil, fmt.Errorf("%w: %w", ErrGuard, err)
	}
	go func() {
		if n, _ := answer.Read(make([]byte, 1)); n > 0 {
			close(g.knows)
		}
	}()
	go func() { _ = g.cmd.Wait(); close(g.gone); answer.Close() }()
	return g, nil
}

// watch tells which group to guard. The guard answers when it knows that, and
// until when.
func (g *guard) watch(target group) { g.tell("group %d\n", target) }

// until tells in how much time to end the group, and to kill it, unless
// something else is told before.
func (g *guard) until(term, kill time.Duration) {
	now := bootTime()
	g.tell("until %d %d\n", now+term, now+kill)
}

// dismiss ends the guard and waits for that: from then on it kills nothing.
func (g *guard) dismiss() {
	g.tell("done 0\n")
	_ = g.pipe.Close()
	select {
	case <-g.gone:
	case <-time.After(guardPatience):
		_ = g.cmd.Process.Kill() // it was stopped, or has too much to do
		<-g.gone
	}
}

func (g *guard) tell(format string, args ...any) {
	_ = g.pipe.SetWriteDeadline(time.Now().Add(guardPatience))
	if _, err := fmt.Fprintf(g.pipe, format, args...); err != nil {
		// Without news it acts on the old deadline, which is safe.
		_ = g.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// Guard is the main function of the guard process. It reads from in what to
// guard and until when, writes one byte to out once it knows both, and kills the
// group at that time, or when in ends without a word: then the supervisor is
// gone. It returns when nothing is left to guard.
func Guard(in io.Reader, out io.Writer) {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	w := watchman{}
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
			if !w.hear(m) {
				return
			}
			if w.ready() && !answered {
				answered = true
				_, _ = out.Write([]byte{1}) // who does not hear it does not let the command go
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

// message is one line: a word and up to two numbers.
type message struct {
	word string
	a, b int64
}

func read(in io.Reader, messages chan<- message) {
	defer close(messages)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var m message
		if n, _ := fmt.Sscan(lines.Text(), &m.word, &m.a, &m.b); n >= 2 {
			messages <- m
		}
	}
}

// watchman is what a guard knows.
type watchman struct {
	target     group
	term, kill time.Duration // by bootTime; 0: not told yet
	asked      bool
}

// ready reports whether it can act alone.
func (w *watchman) ready() bool { return w.target != 0 && w.kill != 0 }

// hear takes a message and reports whether to go on.
func (w *watchman) hear(m message) bool {
	switch m.word {
	case "group":
		w.target = group(m.a)
	case "until":
		w.term, w.kill = time.Duration(m.a), time.Duration(m.b)
	case "done":
		return false
	}
	return true
}

// act does what is due, and says how long nothing will be. The supervisor asks
// the group to end first; the guard does a little later.
func (w *watchman) act(now time.Duration) time.Duration {
	if !w.ready() {
		return guardPoll
	}
	term := w.term + (w.kill-w.term)/4
	switch {
	case now >= w.kill:
		w.target.signal(syscall.SIGKILL)
		return guardPoll
	case now >= term:
		if !w.asked && w.term < w.kill {
			w.asked = true
			w.target.signal(syscall.SIGTERM)
			w.target.signal(syscall.SIGCONT)
		}
		return w.kill - now
	}
	return term - now
}

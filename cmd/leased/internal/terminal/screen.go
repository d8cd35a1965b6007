//go:build unix

package terminal

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// The sequences that enter and leave the alternate screen without a cursor.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[2J"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// controls are the characters that a raw terminal passes on, instead of sending their signals.
var controls = map[byte]syscall.Signal{0x03: syscall.SIGINT, 0x1a: syscall.SIGTSTP, 0x1c: syscall.SIGQUIT}

// Screen is a terminal that a program draws on. Keys arrive one by one and are not
// shown; Ctrl-C, Ctrl-Z and Ctrl-\ remain signals.
type Screen struct {
	in, out *os.File
	before  *term.State
	color   bool
	keys    chan Key
	signals chan os.Signal
	done    chan struct{}

	mu     sync.Mutex
	active bool
}

// Open prepares a terminal. The caller must call Close to restore it.
func Open(in, out *os.File) (*Screen, error) {
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil, ErrNoTerminal
	}
	s := &Screen{in: in, out: out, color: colored(), keys: make(chan Key, 64),
		signals: make(chan os.Signal, 8), done: make(chan struct{})}
	if err := s.enter(); err != nil {
		return nil, err
	}
	signal.Notify(s.signals, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	go s.read()
	go s.watch()
	return s, nil
}

// enter switches to the alternate screen and to single keys.
func (s *Screen) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := term.MakeRaw(int(s.in.Fd()))
	if err != nil {
		return err
	}
	if !s.active {
		s.before = before
	}
	s.active = true
	_, err = s.out.WriteString(enterScreen)
	return err
}

// leave restores the terminal.
func (s *Screen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.active {
		return
	}
	s.active = false
	_, _ = s.out.WriteString(leaveScreen) // nothing can be done about a terminal that is gone
	_ = term.Restore(int(s.in.Fd()), s.before)
}

// Close restores the terminal.
func (s *Screen) Close() {
	signal.Stop(s.signals)
	close(s.done)
	s.leave()
}

// Size returns the number of columns and lines.
func (s *Screen) Size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width == 0 || height == 0 {
		return 80, 24
	}
	return width, height
}

// Keys returns what the user types.
func (s *Screen) Keys() <-chan Key { return s.keys }

// Draw replaces the content of the screen.
func (s *Screen) Draw(lines []Line) error {
	width, height := s.Size()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.active {
		return nil // the program is being stopped
	}
	_, err := s.out.WriteString(frame(lines, width, height, s.color))
	return err
}

// read delivers the keys. It ends with the program: a read from a terminal cannot be
// interrupted.
func (s *Screen) read() {
	buffer := make([]byte, 256)
	for {
		n, err := s.in.Read(buffer)
		for _, b := range buffer[:n] {
			if raised, ok := controls[b]; ok {
				_ = syscall.Kill(0, raised) // to the process group, as the terminal would
			}
		}
		for _, key := range decode(buffer[:n]) {
			s.deliver(key)
		}
		if err != nil {
			s.deliver(Closed)
			return
		}
	}
}

// watch redraws after a resize. After Ctrl-Z it restores the terminal for the shell, and
// prepares it again when the program continues.
func (s *Screen) watch() {
	for {
		select {
		case got := <-s.signals:
			if got == syscall.SIGTSTP {
				s.leave()
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
				continue
			}
			if got == syscall.SIGCONT {
				_ = s.enter() // the next drawing fails if the terminal is gone
			}
			s.deliver(Resized)
		case <-s.done:
			return
		}
	}
}

func (s *Screen) deliver(key Key) {
	select {
	case s.keys <- key:
	case <-s.done:
	}
}

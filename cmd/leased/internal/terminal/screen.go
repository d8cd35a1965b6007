//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package terminal

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/mattn/go-isatty"
	"golang.org/x/sys/unix"
)

// The sequences that enter and leave the alternate screen without a cursor.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[2J"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// Screen is a terminal that a program draws on. Keys arrive one by one and are not
// shown; Ctrl-C stays a signal.
type Screen struct {
	in, out *os.File
	before  *unix.Termios
	color   bool
	keys    chan Key
	signals chan os.Signal
	done    chan struct{}

	mu     sync.Mutex
	active bool
}

// Open prepares a terminal. The caller must call Close to restore it.
func Open(in, out *os.File) (*Screen, error) {
	if !isatty.IsTerminal(in.Fd()) || !isatty.IsTerminal(out.Fd()) || os.Getenv("TERM") == "dumb" {
		return nil, ErrNoTerminal
	}
	before, err := unix.IoctlGetTermios(int(in.Fd()), getTermios)
	if err != nil {
		return nil, ErrNoTerminal
	}
	s := &Screen{in: in, out: out, before: before, color: colored(), keys: make(chan Key, 64), signals: make(chan os.Signal, 8), done: make(chan struct{})}
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
	now := *s.before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(s.in.Fd()), setTermios, &now); err != nil {
		return err
	}
	s.active = true
	_, err := s.out.WriteString(enterScreen)
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
	_ = unix.IoctlSetTermios(int(s.in.Fd()), setTermios, s.before)
}

// Close restores the terminal.
func (s *Screen) Close() {
	signal.Stop(s.signals)
	close(s.done)
	s.leave()
}

// Size returns the number of columns and lines.
func (s *Screen) Size() (width, height int) { return sizeOf(s.out) }

func sizeOf(file *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}

// WidthOf returns the number of columns of a terminal, or 0 for other files.
func WidthOf(file *os.File) int {
	if !isatty.IsTerminal(file.Fd()) {
		return 0
	}
	width, _ := sizeOf(file)
	return width
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

//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package progress

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth asks a terminal for its number of columns. It returns 0 if the terminal
// does not know.
func terminalWidth(out *os.File) int {
	size, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

//go:build !unix

package terminal

import "os"

// Screen is a terminal that a program draws on. This system has none.
type Screen struct{}

// Open returns ErrNoTerminal.
func Open(_, _ *os.File) (*Screen, error) { return nil, ErrNoTerminal }

// Close does nothing.
func (*Screen) Close() {}

// Size returns the size of a common terminal.
func (*Screen) Size() (width, height int) { return 80, 24 }

// Keys returns a channel without keys.
func (*Screen) Keys() <-chan Key { return nil }

// Draw does nothing.
func (*Screen) Draw([]Line) error { return nil }

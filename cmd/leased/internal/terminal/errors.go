package terminal

import "errors"

// ErrNoTerminal means that the files are not a terminal on which a program can draw.
var ErrNoTerminal = errors.New("not a terminal that can be drawn on")

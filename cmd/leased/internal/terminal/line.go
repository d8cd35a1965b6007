package terminal

import (
	"os"
	"strings"
)

// Style is how a line is shown.
type Style int

// The styles of lines.
const (
	Plain Style = iota
	Bold
	Inverse
	Alert
	Warning
	Faint
)

var styles = map[Style]string{Bold: "1", Inverse: "7", Alert: "1;31", Warning: "33", Faint: "2"}

// Line is a line of a screen.
type Line struct {
	Text  string
	Style Style
}

// render returns the line with the sequences of its style, fitted into a width.
func (l Line) render(width int, color bool) string {
	text := Fit(l.Text, width, false)
	code := styles[l.Style]
	if code == "" || !color && l.Style != Inverse {
		return text
	}
	if l.Style == Inverse {
		text = pad(text, width, false)
	}
	return "\x1b[" + code + "m" + text + "\x1b[m"
}

// frame returns the sequences that replace the whole screen with lines.
func frame(lines []Line, width, height int, color bool) string {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l.render(width, color) + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// colored reports whether the user wants colors, see https://no-color.org.
func colored() bool { return os.Getenv("NO_COLOR") == "" }

package progress

import (
	"cmp"
	"os"
	"strconv"
	"strings"
)

// defaultWidth is the number of columns of a terminal that does not tell it.
const defaultWidth = 80

// widthOf returns the number of columns of a terminal. Where the terminal does not tell it,
// the variable COLUMNS does.
func widthOf(out *os.File) int {
	if width := terminalWidth(out); width > 0 {
		return width
	}
	width, _ := strconv.Atoi(os.Getenv("COLUMNS"))
	return cmp.Or(max(0, width), defaultWidth)
}

// fit cuts a text to a number of columns. The end stays visible from its last comma or
// semicolon on, because the time left is there.
func fit(text string, width int) string {
	if columns(text) <= width {
		return text
	}
	tail := ""
	if at := strings.LastIndexAny(text, ",;"); at >= 0 && columns(text[at:]) <= width/2 {
		tail = text[at:]
	}
	room := width - 1 - columns(tail)
	for i, r := range text {
		if room -= columns(string(r)); room < 0 {
			return text[:i] + "…" + tail
		}
	}
	return text
}

// columns returns the number of columns that a text takes at most: East Asian characters
// and symbols may take two.
func columns(text string) (n int) {
	for _, r := range text {
		if n++; r >= 0x1100 && r != '…' {
			n++
		}
	}
	return n
}

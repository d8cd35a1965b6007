package progress

import (
	"cmp"
	"os"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// defaultWidth is the number of columns of a terminal that does not tell it.
const defaultWidth = 80

// cells counts columns. Characters of ambiguous width take one.
var cells = &runewidth.Condition{StrictEmojiNeutral: true}

// widthOf returns the number of columns of a terminal. Where the terminal does not tell it,
// the variable COLUMNS does.
func widthOf(out *os.File) int {
	if width, _, err := term.GetSize(int(out.Fd())); err == nil && width > 0 {
		return width
	}
	width, _ := strconv.Atoi(os.Getenv("COLUMNS"))
	return cmp.Or(max(0, width), defaultWidth)
}

// fit cuts a text to a number of columns. The end stays visible from its last comma or
// semicolon on, because the time left is there.
func fit(text string, width int) string {
	if cells.StringWidth(text) <= width {
		return text
	}
	tail := ""
	if at := strings.LastIndexAny(text, ",;"); at >= 0 && cells.StringWidth(text[at:]) <= width/2 {
		tail = text[at:]
	}
	return cells.Truncate(text, max(0, width-1-cells.StringWidth(tail)), "") + "…" + tail
}

package terminal

import (
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// ellipsis replaces the part of a text that does not fit.
const ellipsis = "…"

// maxMarks is the number of combining marks on one character. Many of them would cover
// other lines.
const maxMarks = 3

// Clean returns a text in which all characters are printable: control characters,
// invisible characters, line breaks, invalid bytes and piles of combining marks are
// escaped as in Go. Names that clients choose cannot move the cursor, change colors or
// reorder a line.
func Clean(text string) string {
	if !strings.ContainsFunc(text, suspicious) {
		return text
	}
	var b strings.Builder
	marks := maxMarks // a mark at the start has no character
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if marks++; !unicode.IsMark(r) {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r != utf8.RuneError && unicode.IsPrint(r) && marks <= maxMarks:
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		text = text[size:]
	}
	return b.String()
}

// suspicious reports whether Clean has to look at a text because of a character.
func suspicious(r rune) bool {
	return r == utf8.RuneError || !unicode.IsPrint(r) || unicode.IsMark(r)
}

// cells counts columns in every locale in the same way: characters of ambiguous width take one.
var cells = &runewidth.Condition{StrictEmojiNeutral: true}

// Width returns the number of columns of a text.
func Width(text string) int { return cells.StringWidth(text) }

// WidthOf returns the number of columns of a terminal, or 0 for other files.
func WidthOf(file *os.File) int {
	width, _, err := term.GetSize(int(file.Fd()))
	if err == nil && width == 0 {
		return 80
	}
	return width
}

// Fit cuts a clean text to a width, at its end or in its middle.
func Fit(text string, width int, middle bool) string {
	if width <= 0 {
		return ""
	}
	if Width(text) <= width {
		return text
	}
	tail := ""
	if middle { // a wide character that is cut leaves a space
		tail = strings.TrimLeft(cells.TruncateLeft(text, Width(text)-(width-1)/2, ""), " ")
	}
	return cells.Truncate(text, width-1-Width(tail), "") + ellipsis + tail
}

// pad fills a text with spaces up to a width.
func pad(text string, width int, right bool) string {
	space := strings.Repeat(" ", max(0, width-Width(text)))
	if right {
		return space + text
	}
	return text + space
}

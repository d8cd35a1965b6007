package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
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

// wide are the characters that take two columns.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x1100, Hi: 0x115f, Stride: 1}, {Lo: 0x2e80, Hi: 0xa4cf, Stride: 1}, {Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1}, {Lo: 0xfe30, Hi: 0xfe6f, Stride: 1}, {Lo: 0xff00, Hi: 0xff60, Stride: 1}, {Lo: 0xffe0, Hi: 0xffe6, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1}, {Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1}, {Lo: 0x1f900, Hi: 0x1faff, Stride: 1},
		{Lo: 0x20000, Hi: 0x3fffd, Stride: 1}},
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// Width returns the number of columns that a clean text takes.
func Width(text string) (n int) {
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
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
	if keep := (width - 1) / 2; middle {
		tail = last(text, keep)
	}
	return first(text, width-1-Width(tail)) + ellipsis + tail
}

// first returns the longest beginning of a text that fits into a width.
func first(text string, width int) string {
	for i, r := range text {
		if width -= runeWidth(r); width < 0 {
			return text[:i]
		}
	}
	return text
}

// last returns the longest end of a text that fits into a width.
func last(text string, width int) string {
	end := len(text)
	for end > 0 {
		r, size := utf8.DecodeLastRuneInString(text[:end])
		if width -= runeWidth(r); width < 0 {
			break
		}
		end -= size
	}
	return text[end:]
}

// pad fills a text with spaces up to a width.
func pad(text string, width int, right bool) string {
	space := strings.Repeat(" ", max(0, width-Width(text)))
	if right {
		return space + text
	}
	return text + space
}

package terminal

import (
	"slices"
	"strings"
)

// maxGrow is the number of columns by which a column with Grow grows at most: on a wide
// terminal a row whose cells are far apart is hard to read.
const maxGrow = 16

// gap is the number of spaces between two columns.
const gap = 2

// Column describes a column of a table.
type Column struct {
	Title string
	// Min is the width to which the column may shrink, 0 if it may not.
	Min int
	// Right aligns numbers; Middle cuts a text in its middle, so both ends of a
	// path stay visible.
	Right, Middle bool
	// Grow lets the column take the space that is left, up to maxGrow.
	Grow bool
	// Drop is not 0 if the column can be left out of a narrow table, and of a table in which
	// it is empty. Columns with larger numbers are left out first.
	Drop int
}

// column is a column that a table shows: its number and its width.
type column struct {
	Column
	number, width int
}

// Table lays out rows of clean texts in at most width columns, or in as many as they need if
// width is 0. The first line is the heading. Lines that still do not fit are cut.
func Table(columns []Column, rows [][]string, width int) []string {
	var shown []column
	heading := make([]string, len(columns))
	for i, c := range columns {
		heading[i] = c.Title
		widest, empty := Width(c.Title), true
		for _, cells := range rows {
			widest, empty = max(widest, Width(cells[i])), empty && cells[i] == ""
		}
		if c.Drop == 0 || !empty {
			shown = append(shown, column{c, i, widest})
		}
	}
	if width > 0 {
		shown = fitColumns(shown, width)
	}
	lines := []string{tableLine(shown, heading, width)}
	for _, cells := range rows {
		lines = append(lines, tableLine(shown, cells, width))
	}
	return lines
}

// fitColumns drops columns until the others can shrink to a width, and then lets them shrink or grow.
func fitColumns(shown []column, width int) []column {
	over, room := 0, 0 // by how much the columns are too wide, and by how much they can shrink
	for {
		drop := 0
		over, room = -width-gap, 0
		for i, c := range shown {
			over += c.width + gap
			if c.Min > 0 {
				room += max(0, c.width-c.Min)
			}
			if c.Drop > shown[drop].Drop {
				drop = i
			}
		}
		if over <= room || shown[drop].Drop == 0 {
			break
		}
		shown = slices.Delete(shown, drop, drop+1)
	}
	for ; over > 0 && room > 0; over, room = over-1, room-1 {
		widest := -1
		for i, c := range shown {
			if c.Min > 0 && c.width > c.Min && (widest < 0 || c.width > shown[widest].width) {
				widest = i
			}
		}
		shown[widest].width--
	}
	if grow := slices.IndexFunc(shown, func(c column) bool { return c.Grow }); grow >= 0 && over < 0 {
		shown[grow].width += min(-over, maxGrow)
	}
	return shown
}

func tableLine(shown []column, cells []string, width int) string {
	var texts []string
	for _, c := range shown {
		texts = append(texts, pad(Fit(cells[c.number], c.width, c.Middle), c.width, c.Right))
	}
	line := strings.TrimRight(strings.Join(texts, strings.Repeat(" ", gap)), " ")
	if width <= 0 {
		return line
	}
	return Fit(line, width, false)
}

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

// Table lays out rows of clean texts in at most width columns, or in as many as they need if
// width is 0. The first line is the heading.
func Table(columns []Column, rows [][]string, width int) []string {
	var shown []int
	for i, c := range columns {
		if c.Drop == 0 || slices.ContainsFunc(rows, func(cells []string) bool { return cells[i] != "" }) {
			shown = append(shown, i)
		}
	}
	widths := layout(columns, shown, rows, width)
	for widths == nil {
		drop := -1
		for at, i := range shown {
			if columns[i].Drop > 0 && (drop < 0 || columns[i].Drop > columns[shown[drop]].Drop) {
				drop = at
			}
		}
		if drop < 0 {
			widths = minimal(columns, shown)
			break
		}
		shown = slices.Delete(shown, drop, drop+1)
		widths = layout(columns, shown, rows, width)
	}
	heading := make([]string, len(columns))
	for i, c := range columns {
		heading[i] = c.Title
	}
	lines := []string{tableLine(columns, shown, widths, heading, width)}
	for _, cells := range rows {
		lines = append(lines, tableLine(columns, shown, widths, cells, width))
	}
	return lines
}

// layout returns the widths of the shown columns, or nil if they do not fit.
func layout(columns []Column, shown []int, rows [][]string, width int) []int {
	widths := make([]int, len(shown))
	left := width - gap*(len(shown)-1)
	for at, i := range shown {
		widths[at] = Width(columns[i].Title)
		for _, cells := range rows {
			widths[at] = max(widths[at], Width(cells[i]))
		}
		left -= widths[at]
	}
	if width <= 0 {
		return widths
	}
	for left < 0 {
		widest := -1
		for at, i := range shown {
			if c := columns[i]; c.Min > 0 && widths[at] > c.Min && (widest < 0 || widths[at] > widths[widest]) {
				widest = at
			}
		}
		if widest < 0 {
			return nil
		}
		widths[widest]--
		left++
	}
	for at, i := range shown {
		if columns[i].Grow {
			widths[at] += min(left, maxGrow)
			break
		}
	}
	return widths
}

// minimal returns the widths for a table that does not fit; its lines are cut.
func minimal(columns []Column, shown []int) []int {
	widths := make([]int, len(shown))
	for at, i := range shown {
		widths[at] = max(columns[i].Min, Width(columns[i].Title))
	}
	return widths
}

func tableLine(columns []Column, shown, widths []int, cells []string, width int) string {
	var b strings.Builder
	for at, i := range shown {
		if at > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		b.WriteString(pad(Fit(cells[i], widths[at], columns[i].Middle), widths[at], columns[i].Right))
	}
	line := strings.TrimRight(b.String(), " ")
	if width <= 0 {
		return line
	}
	return Fit(line, width, false)
}

package plot

import (
	"fmt"
	"math"
)

const (
	width      = 880
	margin     = 16
	gap        = 28
	titleSpace = 34
	legendLine = 22
)

// Figure is a picture with panels beside and below each other.
type Figure struct {
	Title  string
	Panels []Panel
}

// Panel is a chart within a Figure: Lines or Bars.
type Panel interface {
	height(width float64) float64
	styles() []named
	draw(c *canvas, area box)
}

// named is an entry of the legend.
type named struct {
	name  string
	style Style
}

// box is a rectangle in pixels.
type box struct{ x, y, width, height float64 }

// SVG returns the picture.
func (f Figure) SVG() []byte {
	columns := min(2, max(1, len(f.Panels)))
	column := (width - 2*margin - float64(columns-1)*gap) / float64(columns)
	legend := f.legend()
	var heights []float64 // of the rows
	for i, p := range f.Panels {
		if i%columns == 0 {
			heights = append(heights, 0)
		}
		row := len(heights) - 1
		heights[row] = math.Max(heights[row], p.height(column))
	}
	top := titleSpace + float64(len(rows(legend)))*legendLine
	total := top + margin
	for _, h := range heights {
		total += h + gap
	}
	total -= gap
	c := newCanvas(width, total, f.Title)
	c.text(margin, 22, "title", f.Title)
	c.legend(rows(legend))
	y := top
	for i, p := range f.Panels {
		p.draw(c, box{margin + float64(i%columns)*(column+gap), y, column, p.height(column)})
		if i%columns == columns-1 {
			y += heights[i/columns] + gap
		}
	}
	return c.end()
}

// legend returns the series of all panels, each once.
func (f Figure) legend() (legend []named) {
	seen := map[string]bool{}
	for _, p := range f.Panels {
		for _, n := range p.styles() {
			if !seen[n.name] {
				seen[n.name] = true
				legend = append(legend, n)
			}
		}
	}
	return legend
}

// rows splits a legend into lines that fit into the picture.
func rows(legend []named) (lines [][]named) {
	used := math.Inf(1)
	for _, n := range legend {
		need := entryWidth(n.name)
		if used+need > width-2*margin {
			lines, used = append(lines, nil), 0
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], n)
		used += need
	}
	return lines
}

// entryWidth estimates the width of an entry of the legend.
func entryWidth(name string) float64 { return 56 + textWidth(name) }

// textWidth estimates the width of a text in the ordinary size.
func textWidth(text string) float64 { return 6.7 * float64(len([]rune(text))) }

// pixels formats a coordinate.
func pixels(v float64) string { return fmt.Sprintf("%.1f", v) }

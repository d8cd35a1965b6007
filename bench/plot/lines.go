package plot

import (
	"fmt"
	"strings"
)

// Lines is a panel with a line per series.
type Lines struct {
	XLabel, YLabel string
	LogX, LogY     bool
	Series         []Series
	// Limit is a horizontal line with a label, such as a goal; 0 draws none.
	Limit      float64
	LimitLabel string
}

// Series is a line.
type Series struct {
	Name   string
	Style  Style
	Points []Point
}

// Point is a value with its spread. Low and High are equal to Y if there is none.
type Point struct{ X, Y, Low, High float64 }

func (l Lines) height(width float64) float64 {
	if width > lone {
		return 360
	}
	return 300
}

const (
	// lone is the width above which a panel is alone in its row.
	lone = 500
	// edge is the space between the axes and the first and last points.
	edge = 10
)

func (l Lines) styles() (all []named) {
	for _, s := range l.Series {
		all = append(all, named{s.Name, s.Style})
	}
	return all
}

func (l Lines) draw(c *canvas, area box) {
	inner := box{area.x + 52, area.y + 26, area.width - 52 - 8, area.height - 26 - 44}
	var xs, ys []float64
	for _, s := range l.Series {
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y, p.Low, p.High)
		}
	}
	if l.Limit > 0 {
		ys = append(ys, l.Limit)
	}
	x := newScale(xs, l.LogX, inner.x+edge, inner.x+inner.width-edge).tight(xs)
	y := newScale(ys, l.LogY, inner.y+inner.height, inner.y)
	c.text(area.x, area.y+12, "head", l.YLabel)
	for _, tick := range y.ticks() {
		c.segment("grid", inner.x, y.at(tick), inner.x+inner.width, y.at(tick))
		c.text(inner.x-7, y.at(tick)+4, "small end", Number(tick))
	}
	for _, tick := range l.xTicks(x, xs) {
		c.segment("axis", x.at(tick), inner.y+inner.height, x.at(tick), inner.y+inner.height+4)
		c.text(x.at(tick), inner.y+inner.height+17, "small middle", Number(tick))
	}
	c.segment("axis", inner.x, inner.y+inner.height, inner.x+inner.width, inner.y+inner.height)
	c.text(inner.x+inner.width/2, inner.y+inner.height+36, "middle", l.XLabel)
	if l.Limit > 0 {
		c.segment("axis dashed", inner.x, y.at(l.Limit), inner.x+inner.width, y.at(l.Limit))
		label := y.at(l.Limit) - 5
		if label < inner.y+10 { // the space above is that of the title
			label += 18
		}
		c.text(inner.x+4, label, "small", l.LimitLabel)
	}
	for _, s := range l.Series {
		s.draw(c, x, y)
	}
}

// xTicks returns the values themselves if they are few, so that each point has its label.
func (l Lines) xTicks(x scale, xs []float64) []float64 {
	seen := map[float64]bool{}
	var values []float64
	for _, v := range xs {
		if !seen[v] && (!l.LogX || v > 0) {
			seen[v] = true
			values = append(values, v)
		}
	}
	if len(values) <= 8 {
		return values
	}
	return x.ticks()
}

// draw draws the line, the spread of each point, and the markers on top.
func (s Series) draw(c *canvas, x, y scale) {
	var path strings.Builder
	for i, p := range s.Points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(&path, "%s%s %s", command, pixels(x.at(p.X)), pixels(y.at(p.Y)))
		if p.High > p.Low {
			c.segment(s.Style.Color.class()+" range", x.at(p.X), y.at(p.Low), x.at(p.X), y.at(p.High))
		}
	}
	if len(s.Points) > 1 {
		fmt.Fprintf(&c.out, `<path class="%s line%s" d="%s"/>`+"\n", s.Style.Color.class(), s.Style.dash(), path.String())
	}
	for _, p := range s.Points {
		c.element(s.Style.at(x.at(p.X), y.at(p.Y)))
	}
}

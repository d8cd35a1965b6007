package plot

import (
	"fmt"
	"strings"
)

// Style is the look of a series. Its zero value is a grey line with circles.
type Style struct {
	Color  Color
	Marker Marker
	Dashed bool
}

// Color is a colour that differs from the others for readers with any kind of colour vision, on light and on dark pages.
type Color int

// The colours are those of Okabe and Ito, and neighbours of them with more contrast to the page.
const (
	Grey Color = iota
	Blue
	Vermilion
	Green
	Purple
	Orange
	Indigo
	Brown
)

// shades are the colours on a light and on a dark page.
var shades = [...][2]string{
	Grey:      {"#5f6368", "#b4b8bd"},
	Blue:      {"#0072b2", "#56b4e9"},
	Vermilion: {"#d55e00", "#ff8b4d"},
	Green:     {"#00815d", "#35d0a1"},
	Purple:    {"#b0478c", "#e79ac8"},
	Orange:    {"#b07d00", "#f0c040"},
	Indigo:    {"#44349b", "#a99cf5"},
	Brown:     {"#7a4a24", "#c99a72"},
}

// Marker is the shape of the points of a series.
type Marker int

// The shapes.
const (
	Circle Marker = iota
	Square
	Triangle
	Diamond
	Cross
)

// class returns the CSS class of a colour.
func (c Color) class() string { return fmt.Sprintf("c%d", c) }

// dash returns the class of a dashed line.
func (s Style) dash() string {
	if s.Dashed {
		return " dashed"
	}
	return ""
}

// at returns the marker as an element at a point.
func (s Style) at(x, y float64) string {
	const r = 4.0
	class := s.Color.class() + " mark"
	path := func(points ...float64) string {
		var d strings.Builder
		for i := 0; i < len(points); i += 2 {
			fmt.Fprintf(&d, "%s,%s ", pixels(x+points[i]), pixels(y+points[i+1]))
		}
		return fmt.Sprintf(`<polygon class="%s" points="%s"/>`, class, strings.TrimSpace(d.String()))
	}
	switch s.Marker {
	case Square:
		return path(-r+.5, -r+.5, r-.5, -r+.5, r-.5, r-.5, -r+.5, r-.5)
	case Triangle:
		return path(0, -r-1, r+.5, r-.5, -r-.5, r-.5)
	case Diamond:
		return path(0, -r-1, r+1, 0, 0, r+1, -r-1, 0)
	case Cross:
		return path(-1.4, -r-1, 1.4, -r-1, 1.4, -1.4, r+1, -1.4, r+1, 1.4, 1.4, 1.4, 1.4, r+1, -1.4, r+1, -1.4, 1.4, -r-1, 1.4, -r-1, -1.4, -1.4, -1.4)
	default:
		return fmt.Sprintf(`<circle class="%s" cx="%s" cy="%s" r="%s"/>`, class, pixels(x), pixels(y), pixels(r))
	}
}

// Package plot draws charts as SVG, without a dependency.
//
// The charts are readable on light and dark pages. A series has its own colour, marker and dash, so that no reader
// depends on colours alone.
//
// The nouns, in reading order: Figure, one or several panels with a title and a legend; Lines, a panel with a line per
// series; Bars, a panel with a bar per value; Style, the look of a series; scale, which maps values to pixels.
package plot

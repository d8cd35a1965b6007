// Package timeline draws a history of events as a space-time diagram: one vertical
// line for each process, time runs downwards, messages are arrows.
//
// The diagram is not to scale. Every event has a row of its own, long idle times
// are shortened, and the axis shows the time.
//
// Files, in reading order:
//
//   - page.go: [Write] and [WritePage], which write one self-contained HTML file
//     without scripts; [Section], one history on a page;
//   - excerpt.go: [Excerpt], the part of a long history that explains one event;
//   - layout.go: the position of every line and row;
//   - svg.go: the drawing.
package timeline

// Package spacetime draws a history of promise.Events: one line for each party,
// time runs downwards, messages are arrows from line to line.
//
// What it does not give: a scale that can be measured with a ruler. Every event
// has a row of its own, so that it can be read; long times in which nothing
// happens are drawn shorter, and the axis says what time it is.
//
// The nouns, in reading order: [Write] and [WritePage], which make one file of
// HTML with everything in it and no script; [Section], one history on a page;
// [Excerpt], the part of a long history that explains one of its events; plan,
// where everything goes; drawing, the SVG.
package spacetime

// Package progress shows people the progress of a long operation, and the time left.
//
// The estimate assumes the average rate so far, so it is wrong if the rate changes.
//
// The nouns, in reading order: [Line], which shows the progress on a terminal or in a
// log; [Work], an amount of work with its rate and its time left.
package progress

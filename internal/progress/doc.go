// Package progress reports how far long work has come, and the time left, to people who
// wait for it.
//
// It estimates by the average rate so far, which is wrong if the rate changes.
//
// The nouns, in reading order: [Line], which shows the progress on a terminal or in a
// log; [Work], an amount of work with its rate and its time left.
package progress

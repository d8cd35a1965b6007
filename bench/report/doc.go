// Command report writes docs/PERFORMANCE.md and its plots from the results of the benchmark and of the curves:
//
//	go run ./report -docs ../docs results.json curves.json
//
// It computes medians, spreads and ratios. A ratio is the median of the ratios of the rounds, since the two services of
// a ratio were measured one after the other in each round. The text comes from the template performance.md.tmpl, which
// contains no measured figure: only calls of functions that print one. The document says what was not measured.
//
// The plots are drawn by gonum.org/v1/plot (docs/adr/0034-libraries-or-our-own-code.md).
//
// The nouns, in reading order: summary, the values of all runs; results.Spread, a median with its range; workload,
// how a table and a plot look; goal, a bound that a figure should reach; loss, a figure in which a peer is
// ahead; document, the functions of the template.
package main

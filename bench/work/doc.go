// Package work has the workloads of the comparison, and runs them.
//
// The targets alternate within each round, so that other load on the machine affects all
// of them. Every workload starts new servers.
//
// The nouns, in reading order: [Settings] of a run; workload, a row of the table of workloads and curves; bench, the
// state of the run; [Child], a process of a workload that needs several; [Table], which
// prints the medians.
package work

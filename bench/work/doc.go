// Package work has the workloads of the comparison.
package work

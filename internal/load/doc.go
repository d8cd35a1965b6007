// Package load puts a lock service under load and measures it.
//
// It knows no particular service. Its figures are those of the caller: a rate, and the
// latencies that a worker sees. They compare two services only if both are measured on
// the same machine in the same run.
//
// The nouns, in reading order: [Target], which opens a [Client] of a lock service, with its [Held] locks;
// [Work], what the workers do, of a [Kind]; [Run], which does the work
// for the time that its [Options] say, and reports each [Grant]; [Result], what it
// measured, with its [Histogram]s.
package load

// Package leasetest tests engines: it has the conformance suite that every engine
// passes, and clocks that a test can suspend or stop.
//
// It does not test speed, and it does not replace the tests of an engine's own
// faults: package proptest and the engines have those.
//
// The types: [Subject] and [Run] (the suite), [Clock], [StoppedClock].
package leasetest
